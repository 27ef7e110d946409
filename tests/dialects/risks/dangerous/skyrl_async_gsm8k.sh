uv run --isolated --extra vllm -m examples.train.async.main_async \
    trainer.algorithm.advantage_estimator="grpo" \
    trainer.policy.model.path=Qwen/Qwen2.5-1.5B-Instruct \
    trainer.micro_forward_batch_size_per_gpu=64 \
    trainer.micro_train_batch_size_per_gpu=64 \
    trainer.algorithm.use_kl_loss=true \
    trainer.placement.colocate_all=false \
    generator.inference_engine.backend=vllm \
    $@
