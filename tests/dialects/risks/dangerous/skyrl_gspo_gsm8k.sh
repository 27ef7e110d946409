uv run --isolated --extra vllm -m examples.train.gsm8k.main_gsm8k \
    trainer.algorithm.advantage_estimator="grpo" \
    trainer.policy.model.path=Qwen/Qwen2.5-1.5B-Instruct \
    trainer.algorithm.policy_loss_type="gspo" \
    trainer.algorithm.loss_reduction="sequence_mean" \
    trainer.micro_forward_batch_size_per_gpu=40 \
    trainer.micro_train_batch_size_per_gpu=40 \
    trainer.placement.colocate_all=false \
    generator.inference_engine.backend=vllm \
    $@
