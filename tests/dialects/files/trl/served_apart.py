"""Trains against a server that is started first:

trl vllm-serve --model weights --tensor-parallel-size 2
accelerate launch --num_processes 2 served_apart.py --env-urls http://one http://two
"""

from trl import GRPOConfig, GRPOTrainer

config = GRPOConfig(output_dir="out", use_vllm=True, vllm_mode="server", num_generations=2, beta=0.05)

GRPOTrainer(model="weights", args=config, reward_funcs=len, train_dataset=None).train()
