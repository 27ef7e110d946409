ARGS=(
   --hf-checkpoint weights
   --rollout-max-response-len 4096
   --use-opd
   --opd-type self
   --opsd-beta 0.5
   --eps-clip 0.25
)

python3 train.py "${ARGS[@]}"
