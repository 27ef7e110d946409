CUDA_VISIBLE_DEVICES=0 NPROC_PER_NODE=1 swift rlhf \
    --rlhf_type grpo \
    --model Qwen/Qwen2.5-3B-Instruct \
    --use_vllm true \
    --vllm_enable_lora true \
    --tuner_type lora \
    --quant_method bnb \
    --quant_bits 4 \
    --bnb_4bit_quant_type nf4 \
    --num_generations 8 \
    --epsilon 0.2 \
    --epsilon_high 0.28 \
    $@
