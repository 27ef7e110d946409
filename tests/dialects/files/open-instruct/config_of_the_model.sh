python open_instruct/grpo.py \
    --model_name_or_path weights/thinker \
    --config_name thinker_32B \
    --dataset_mixer_list mine/prompts 1.0 \
    --num_samples_per_prompt_rollout 8 \
    --clip_higher 0.25 \
    --beta 0.0
