ARGS=(
   --hf-checkpoint /root/Qwen3-4B
   --rollout-function-path fully_async_rollout.generate_rollout_fully_async
   --use-tis
   --advantage-estimator grpo
   --eps-clip 0.2
   --eps-clip-high 0.28
   --n-samples-per-prompt 8
   --rollout-temperature 1
)
ray job submit --address=http://127.0.0.1:8265 -- python3 train_async.py \
   --actor-num-nodes 1 \
   ${ARGS[@]}
