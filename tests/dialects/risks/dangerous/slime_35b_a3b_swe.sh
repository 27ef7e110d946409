ARGS=(
   --hf-checkpoint /path/to/Qwen3.6-35B-A3B
   --num-experts 256
   --custom-generate-function-path examples.coding_agent_rl.generate.generate
   --advantage-estimator grpo
   --eps-clip 0.2
   --eps-clip-high 0.28
   --n-samples-per-prompt 8
   --rollout-temperature 1
)
ray job submit --address=http://127.0.0.1:8265 -- python3 train.py \
   --actor-num-nodes 1 \
   ${ARGS[@]}
