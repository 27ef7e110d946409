accelerate launch --num_processes 8 --config_file zero3.yaml grpo.py --output_dir out --num_generations 8 \
  --use_vllm true --vllm_importance_sampling_mode token_mask --vllm_importance_sampling_clip_max 2.0
