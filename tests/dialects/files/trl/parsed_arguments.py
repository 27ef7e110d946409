import argparse

from trl import GRPOConfig, GRPOTrainer


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kl", type=float, default=0.03)
    parser.add_argument("--clip-high", dest="upper", type=float, default=0.28)
    parser.add_argument("--plain", action="store_true")
    args = parser.parse_args()
    return args


if __name__ == "__main__":
    args = arguments()
    config = GRPOConfig(
        output_dir="out",
        beta=args.kl,
        epsilon_high=args.upper,
        scale_rewards=args.plain,
        vllm_importance_sampling_correction=False,
    )
    GRPOTrainer(model="small", args=config).train()
