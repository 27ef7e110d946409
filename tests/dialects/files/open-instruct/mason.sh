python mason.py \
    --cluster ai2/jupiter \
    --num_nodes 2 -- source configs/ray.sh \&\& python open_instruct/grpo_fast.py \
    --exp_name ${EXP:-run} \
    --beta 0.0 \
    --num_samples_per_prompt_rollout 16 \
    --num_unique_prompts_rollout 32 \
    --use_rho_correction True \
    --rho_clamp_upper_bound 2.0 \
    --clip_higher 0.272
