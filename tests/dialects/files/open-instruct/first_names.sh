python mason.py --cluster small --gpus 8 -- source setup.sh \&\& python open_instruct/grpo_fast.py \
    --exp_name first \
    --num_samples_per_prompt_rollout 8 \
    --beta 0.02 \
    --kl_estimator kl4
