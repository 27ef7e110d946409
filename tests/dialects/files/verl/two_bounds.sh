rs="token_k1,seq_max_k2"
bounds="0.5_2.0,2.5"
ARGS=(
    algorithm.rollout_correction.rollout_is=token
    algorithm.rollout_correction.rollout_rs=\'${rs}\'
    algorithm.rollout_correction.rollout_rs_threshold=\'${bounds}\'
)
python3 -m verl.trainer.main_ppo "${ARGS[@]}" "$@"
