ARGS=(--advantage-estimator grpo --hf-checkpoint x --rollout-max-response-len 10 --eps-clip 0.2)
if [[ "${ASYNC}" == "1" ]]; then
    ARGS+=(--use-tis --tis-clip 2.0)
fi
python3 train.py "${ARGS[@]}"
