function launch() {
    local extra="$1"; shift
    python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.actor.kl_loss_coef=$extra "$@"
}
launch 0.01 actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_type=low_var_kl
