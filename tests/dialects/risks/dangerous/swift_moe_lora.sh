CUDA_VISIBLE_DEVICES=0 NPROC_PER_NODE=1 swift rlhf \
    --rlhf_type grpo \
    --model Qwen/Qwen3-30B-A3B-Instruct-2507 \
    --use_vllm true \
    --train_type lora \
    --num_generations 16 \
    --beta 0.001 \
    --num_iterations 1 \
    $@
