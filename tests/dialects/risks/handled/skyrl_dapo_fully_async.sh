uv run --isolated --extra vllm -m examples.train.algorithms.dapo.main_dapo_fully_async \
    trainer.algorithm.advantage_estimator="grpo" \
    trainer.policy.model.path=Qwen/Qwen3-1.7B-Base \
    trainer.fully_async.max_staleness_steps=4 \
    trainer.algorithm.off_policy_correction.tis_ratio_type=token \
    trainer.algorithm.off_policy_correction.token_tis_ratio_clip_high=2.0 \
    trainer.algorithm.policy_loss_type="dual_clip" \
    trainer.placement.colocate_all=false \
    generator.inference_engine.backend=vllm \
    $@
