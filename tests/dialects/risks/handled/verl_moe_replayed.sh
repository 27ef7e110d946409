python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    actor_rollout_ref.rollout.name=vllm \
    trainer.nnodes=2 \
    actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B \
    actor_rollout_ref.actor.router_replay.mode=R3 \
    actor_rollout_ref.rollout.enable_rollout_routing_replay=True \
    actor_rollout_ref.actor.clip_ratio=0.2 \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    $@
