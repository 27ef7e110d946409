import os

from trl import GRPOConfig

GRPOConfig(output_dir="x", loss_type="grpo", beta=float(os.environ["BETA"]), use_vllm=True, vllm_importance_sampling_mode="token_mask")
