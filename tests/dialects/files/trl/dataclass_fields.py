from dataclasses import dataclass, field

from trl import GRPOConfig, GRPOTrainer, TrlParser


@dataclass
class MyConfig(GRPOConfig):
    beta: float = field(default=0.02, metadata={"help": "The KL."})
    epsilon: float = 0.1
    loss_type: str = "bnpo"
