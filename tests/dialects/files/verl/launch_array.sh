DATA=(
    algorithm.adv_estimator=grpo
)
ACTOR=(
    actor_rollout_ref.actor.policy_loss.loss_mode=cispo
    actor_rollout_ref.actor.clip_ratio_low=${LOW:-10}
    actor_rollout_ref.actor.clip_ratio_high=${HIGH:-0.2}
)
EXTRA=(
)
# uv (set USE_UV=0 for the system's python)
LAUNCH=(python3)
if [ "${USE_UV:-1}" != 0 ]; then
    uv sync --extra vllm --frozen
    LAUNCH=(uv run --frozen --no-sync python3)
fi
"${LAUNCH[@]}" -m verl.trainer.main_ppo \
    "${DATA[@]}" \
    "${ACTOR[@]}" \
    "${EXTRA[@]}" \
    "$@"
