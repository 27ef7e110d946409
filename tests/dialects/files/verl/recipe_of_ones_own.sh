python3 -m recipe.scaled.main_ppo \
    algorithm.adv_estimator=grpo \
    actor_rollout_ref.actor.clip_ratio_high=0.3 \
    actor_rollout_ref.rollout.n=8 \
    +actor_rollout_ref.rollout.scale_with_load=True $@
