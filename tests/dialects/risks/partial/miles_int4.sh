ARGS=(
   --hf-checkpoint /root/Moonlight-16B-A3B-INT4
   --int4-params-rollout
   --use-miles-router
   --advantage-estimator grpo
   --eps-clip 0.2
   --eps-clip-high 0.28
   --n-samples-per-prompt 8
   --rollout-temperature 1
)
ray job submit --address=http://127.0.0.1:8265 -- python3 miles/train.py \
   --actor-num-nodes 1 \
   ${ARGS[@]}
