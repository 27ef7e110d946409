batch_size=64
num_generations=8
python3 -m tunix.cli.grpo_main \
  examples/deepscaler/configs/base.yaml \
  training_mode=agentic_grpo \
  batch_size=$batch_size \
  agentic_grpo_config.num_generations=$num_generations \
  agentic_grpo_config.beta=0.0 \
  agentic_grpo_config.epsilon=0.2 \
  agentic_grpo_config.epsilon_high=0.28 \
  agentic_grpo_config.loss_agg_mode=token-mean \
  agentic_grpo_config.sampler_is=token
