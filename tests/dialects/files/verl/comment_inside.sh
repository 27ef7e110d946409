python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=rloo \
    # algorithm.gamma=0.9 \
    actor_rollout_ref.actor.clip_ratio_low=0.1 \
    actor_rollout_ref.actor.clip_ratio_high=0.3
