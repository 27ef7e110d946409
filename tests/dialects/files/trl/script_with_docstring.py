# Copyright nobody.
"""
pip install math_verify

accelerate launch \
    --config_file examples/accelerate_configs/zero3.yaml \
    examples/scripts/grpo.py \
    --output_dir run \
    --learning_rate 1e-5 \
    --use_vllm \
    --vllm_mode colocate \
    --epsilon_high 0.28 \
    --loss_type dapo
"""
from trl import GRPOConfig, GRPOTrainer, TrlParser

if __name__ == "__main__":
    parser = TrlParser(GRPOConfig)
    (training_args,) = parser.parse_args_and_config()
    training_args.model_init_kwargs = dict(device_map=None)
    trainer = GRPOTrainer(model="m", args=training_args)
    trainer.train()
