"""Serve first:

vllm serve m --weight-transfer-config '{"backend":"nccl"}'
"""

from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

config = AsyncGRPOConfig(output_dir="o", per_device_train_batch_size=16, epsilon=0.3)
trainer = AsyncGRPOTrainer(model="m", args=config)
