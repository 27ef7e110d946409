ARGS=(
   --loss-type fipo_loss
   --advantage-estimator grpo
   --eps-clip 0.2
   --fipo-clip-ratio 0.2           # both sides
)
ray job submit -- python3 train.py --rollout-max-response-len 512 ${ARGS[@]}
