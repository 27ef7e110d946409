"""
accelerate launch \
    examples/mine/grpo_by_its_own_text.py \
    --model_name_or_path weights \
    --importance_sampling_level sequence \
    --epsilon 3e-4 \
    --epsilon_high 5e-4 \
    --beta 0.0
"""

from trl import GRPOConfig, GRPOTrainer, TrlParser

if __name__ == "__main__":
    (training_args,) = TrlParser((GRPOConfig,)).parse_args_and_config()
    GRPOTrainer(model="weights", args=training_args, reward_funcs=len, train_dataset=None).train()
