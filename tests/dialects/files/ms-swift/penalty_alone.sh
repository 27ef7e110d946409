NPROC_PER_NODE=2 \
swift rlhf \
    --rlhf_type grpo \
    --model small \
    --num_generations 8 \
    --beta 0.1
