ARGS=(
   --hf-checkpoint weights
   --rollout-max-response-len 4096
   --n-samples-per-prompt 4
   --custom-reward-post-process-path mine.rewards.centre_by_source
   --advantage-estimator grpo
   --eps-clip 0.25
)

python3 train.py "${ARGS[@]}"
