set -x
"""
A text in three quotes, as in Python (e.g. a drop from 0.99 to 0.8); a token’s probability.
"""
MODE=${MODE:-"dppo_tv"}
if [[ $MODE == "dppo_kl" ]]; then
    low=0.05
elif [[ $MODE == "dppo_tv" ]]; then
    low=0.15
else
    echo "no loss $MODE"
    exit 1
fi
n=$(((128)))
ENGINE="
    actor_rollout_ref.actor.fsdp_config.param_offload=True \
    actor_rollout_ref.actor.fsdp_config.fsdp_size=$n"
ACTOR="
    actor_rollout_ref.actor.clip_ratio_low=$low \
    actor_rollout_ref.actor.clip_ratio_high=$low
    actor_rollout_ref.actor.clip_ratio_c=10000.0 \
    actor_rollout_ref.actor.policy_loss.loss_mode=${MODE}"
CRITIC="${ENGINE//actor_rollout_ref.actor/critic.model}"
python3 -u -m verl.trainer.main_ppo \
    --config-path=./config \
    --config-name=ppo_megatron_trainer \
    algorithm.adv_estimator=grpo \
    algorithm.rollout_correction.bypass_mode=True \
    trainer.logger=['console','wandb'] \
    custom_reward_function.path="$HOME/x.py"\
    custom_reward_function.name="score"\
    trainer.total_training_steps="${STEPS:-5}" $@ \
    $ACTOR $ENGINE \
    $CRITIC 2>&1 | tee ${LOG}
