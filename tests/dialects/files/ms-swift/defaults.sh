NPROC_PER_NODE=4 \
swift rlhf \
    --rlhf_type grpo \
    --model weights \
    --reward_funcs accuracy format \
    --use_vllm true \
    --vllm_mode colocate \
    --dataset 'mine/prompts#500' \
    --num_generations 8 \
    --temperature 0.9
