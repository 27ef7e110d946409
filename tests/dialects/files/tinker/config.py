from tinker_cookbook.rl import train
from tinker_cookbook.recipes.math_rl import math_env


def build_config():
    return train.Config(
        model_name="Qwen/Qwen3-8B",
        recipe_name="mine",
        log_path="/tmp/run",
        dataset_builder=math_env.get_math_dataset_builder(dataset_name="math", batch_size=64, group_size=8),
        learning_rate=2e-5,
        max_tokens=2048,
        loss_fn="dro",
        loss_fn_config={"beta": 0.05},
        kl_penalty_coef=0.0,
    )
