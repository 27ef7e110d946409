uv run python -m tinker_cookbook.recipes.code_rl.train model_name=Qwen/Qwen3-8B group_size=8 groups_per_batch=32 loss_fn=cispo
