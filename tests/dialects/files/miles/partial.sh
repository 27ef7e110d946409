ROLLOUT_ARGS=(
   --prompt-data dapo.jsonl
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   --rollout-max-response-len 8192
   --partial-rollout
   --mask-offpolicy-in-partial-rollout
   --max-weight-staleness 2
)

GRPO_ARGS=(
   --advantage-estimator gspo
   --eps-clip 3e-4
   --eps-clip-high 4e-4
   --use-tis
)

ray job submit --address="http://127.0.0.1:8265" -- python3 train_async.py \
   --hf-checkpoint qwen \
   ${ROLLOUT_ARGS[@]} \
   ${GRPO_ARGS[@]}
