uv run --isolated --extra vllm -m examples.train.algorithms.dapo.main_dapo \
    trainer.algorithm.advantage_estimator="grpo" \
    trainer.policy.model.path="Qwen/Qwen3-30B-A3B-Base" \
    trainer.algorithm.policy_loss_type="dual_clip" \
    trainer.algorithm.clip_ratio_c=10.0 \
    trainer.algorithm.eps_clip_low=0.2 \
    trainer.algorithm.eps_clip_high=0.28 \
    trainer.policy.model.lora.rank=128 \
    trainer.micro_forward_batch_size_per_gpu=4 \
    trainer.micro_train_batch_size_per_gpu=4 \
    trainer.placement.colocate_all=false \
    generator.inference_engine.backend=vllm \
    $@
