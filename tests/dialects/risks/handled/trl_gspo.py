from trl import GRPOConfig, GRPOTrainer

config = GRPOConfig(output_dir="o", use_vllm=True, importance_sampling_level="sequence", epsilon=3e-4, epsilon_high=4e-4, num_generations=8)
trainer = GRPOTrainer(model="Qwen/Qwen2.5-7B", args=config, reward_funcs=reward)
