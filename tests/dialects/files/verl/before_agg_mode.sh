ray job submit --no-wait --runtime-env="${RUNTIME_ENV}" -- python3 -m recipe.dapo.src.main_dapo \
    algorithm.adv_estimator=grpo \
    actor_rollout_ref.actor.use_token_level_loss=False \
    +actor_rollout_ref.model.override_config.attention_dropout=0.
