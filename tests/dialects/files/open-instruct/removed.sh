uv run python open_instruct/grpo_fast.py --num_samples_per_prompt_rollout 8 --truncated_importance_sampling_ratio_cap 2.0 --beta 0.01
