import yaml
from trl import GRPOConfig, GRPOTrainer


def main(path):
    with open(path) as file:
        more = yaml.safe_load(file)
    config = GRPOConfig(output_dir="out", epsilon=0.1, epsilon_high=0.25, loss_type="dapo", **more)
    GRPOTrainer(model="small", args=config).train()
