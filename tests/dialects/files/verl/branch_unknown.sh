if [ -n "$USE_TIS" ]; then
    LEVEL=token
else
    LEVEL=sequence
fi
python3 -m verl.trainer.main_ppo \
    algorithm.rollout_correction.rollout_is=$LEVEL \
    actor_rollout_ref.actor.clip_ratio_low=0.1 \
    actor_rollout_ref.actor.loss_agg_mode=token-mean
