from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

config = GRPOConfig(
    output_dir="o", use_vllm=True, num_generations=8,
    vllm_importance_sampling_mode="token_truncate", vllm_importance_sampling_clip_max=2.0
)
trainer = GRPOTrainer(model="Qwen/Qwen2.5-7B", args=config, reward_funcs=reward, peft_config=LoraConfig())
