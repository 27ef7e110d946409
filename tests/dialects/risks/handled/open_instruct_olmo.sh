python open_instruct/grpo_fast.py \
    --exp_name o \
    --model_name_or_path allenai/Olmo-3-1025-7B \
    --beta 0.0 \
    --clip_higher 0.272 \
    --num_samples_per_prompt_rollout 8 \
    --async_steps 8 \
    --use_rho_correction true \
    $@
