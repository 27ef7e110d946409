python3 -m openrlhf.cli.train_ppo_ray --vllm_num_engines 2 --enable_vllm_is_correction --vllm_is_truncated_threshold 2 --eps_clip 0.2
