python open_instruct/grpo_fast.py \
    --exp_name q \
    --model_name_or_path Qwen/Qwen2.5-7B \
    --beta 0.0 \
    --clip_higher 0.272 \
    --num_samples_per_prompt_rollout 16 \
    --use_rho_correction true \
    --async_steps 1 \
    $@
