export RAY_ADDRESS="http://127.0.0.1:8265"
working_dir=${PWD}
ray job submit --no-wait --address "${RAY_ADDRESS}" \
    --runtime-env-json='{"working_dir": "'"${working_dir}"'", "env_vars": {"A": "1"}}' \
    -- python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=reinforce_plus_plus \
    algorithm.gamma=1.0 \
    ++algorithm.rollout_correction.rollout_is=token 2>&1 | tee "log_$(date +%s).txt"
