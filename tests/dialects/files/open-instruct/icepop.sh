python open_instruct/grpo_fast.py --num_samples_per_prompt_rollout 8 --use_icepop --truncated_importance_sampling_ratio_cap 2.0 --clip_higher 0.28 --beta 0.0
