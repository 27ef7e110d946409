set -x
COMMON=(
    algorithm.adv_estimator=grpo   # the group's mean
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B
)
CORRECTION=()
CORRECTION+=("algorithm.rollout_correction.rollout_rs=seq_mean_k1")
CORRECTION+=('algorithm.rollout_correction.rollout_rs_threshold="0.99_1.01"')
python -m verl.trainer.main_ppo "${COMMON[@]}" ${CORRECTION[@]} "$@"
