common=(
    algorithm.adv_estimator=grpo
    actor_rollout_ref.actor.clip_ratio_low=0.2
    actor_rollout_ref.actor.clip_ratio_high=0.28
    async_training.staleness_threshold=0.5
)
if [ "${STRATEGY:-fsdp2}" == "fsdp2" ]; then
    python3 -m verl.experimental.fully_async_policy.fully_async_main "${common[@]}" critic.strategy=fsdp2 $@
elif [ "${STRATEGY}" == "megatron" ]; then
    python3 -m verl.experimental.fully_async_policy.fully_async_main \
        --config-name='fully_async_ppo_megatron_trainer.yaml' "${common[@]}" $@
fi
