EPS=${EPS:-4e-4}
GSPO_ARGS=(
   --advantage-estimator gspo
   --eps-clip "$EPS"
)
PYTHONPATH=/root/Megatron-LM python3 train_async.py --hf-checkpoint m --rollout-num-gpus-per-engine 2 "${GSPO_ARGS[@]}" > "run.log" 2>&1
