import argparse

from trl import GRPOConfig


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--beta", type=float, default=0.01)
    parser.add_argument("--vllm-importance-sampling-correction", type=bool, default=False)
    parser.add_argument("--model-id", default=None)
    return parser.parse_args()


def main():
    args = parse()
    GRPOConfig(output_dir="x", num_generations=4, loss_type="dr_grpo", max_completion_length=256)
