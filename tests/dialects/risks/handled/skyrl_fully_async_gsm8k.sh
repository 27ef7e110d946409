uv run --isolated --extra vllm -m examples.train.fully_async.main_fully_async \
    trainer.algorithm.advantage_estimator="grpo" \
    trainer.policy.model.path=Qwen/Qwen2.5-1.5B-Instruct \
    trainer.fully_async.max_staleness_steps=4 \
    trainer.algorithm.off_policy_correction.tis_ratio_type=token \
    trainer.algorithm.off_policy_correction.token_tis_ratio_clip_high=2.0 \
    trainer.micro_forward_batch_size_per_gpu=8 \
    trainer.micro_train_batch_size_per_gpu=8 \
    trainer.placement.colocate_all=false \
    generator.inference_engine.backend=vllm \
    $@
