python -m tinker_cookbook.recipes.math_rl.train \
    model_name="meta-llama/Llama-3.1-8B" \
    env=gsm8k \
    group_size=16 \
    groups_per_batch=64 \
    learning_rate=8e-5 \
    max_tokens=512 \
    max_steps_off_policy=3 \
    loss_fn=ppo \
    'loss_fn_config={"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}'
