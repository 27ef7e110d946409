uv run examples/run_grpo_math.py --config examples/configs/grpo_math_8B.yaml grpo.num_prompts_per_step=8 loss_fn.ratio_clip_min=0.2 \
  loss_fn.use_importance_sampling_correction=True
