from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

config = AsyncGRPOConfig(output_dir="o", per_device_train_batch_size=8, max_staleness=4, epsilon=0.2)
trainer = AsyncGRPOTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", args=config)
