python3 -m verl.trainer.main_ppo \
    actor_rollout_ref.actor.tis_imp_ratio_cap=2 \
    actor_rollout_ref.rollout.calculate_log_probs=True \
    algorithm.adv_estimator=grpo
