from trl import GRPOConfig, GRPOTrainer

EPSILON = 0.2
STEPS = 4
shared = {"loss_type": "grpo", "beta": 0.04}


def main():
    args = GRPOConfig(
        output_dir=f"out-{STEPS}",
        epsilon=EPSILON,
        epsilon_high=EPSILON + 0.08,
        learning_rate=float("1e-6"),
        num_generations=8 * 2,
        use_vllm=True,
        vllm_importance_sampling_mode="token_truncate",
        vllm_importance_sampling_clip_max=2.0,
        **shared,
    )
    GRPOTrainer(model="m", args=args).train()
