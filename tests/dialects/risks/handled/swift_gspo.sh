CUDA_VISIBLE_DEVICES=0 NPROC_PER_NODE=1 swift rlhf \
    --rlhf_type grpo \
    --model Qwen/Qwen2.5-7B-Instruct \
    --use_vllm true \
    --tuner_type full \
    --importance_sampling_level sequence \
    --epsilon 3e-4 \
    --epsilon_high 4e-4 \
    --num_generations 16 \
    --beta 0 \
    $@
