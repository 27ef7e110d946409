CUDA_VISIBLE_DEVICES=0 NPROC_PER_NODE=1 swift rlhf \
    --rlhf_type grpo \
    --model Qwen/Qwen2.5-7B-Instruct \
    --use_vllm true \
    --async_generate true \
    --tuner_type full \
    --rollout_importance_sampling_mode token_truncate \
    --rollout_importance_sampling_threshold 2.0 \
    --beta 0 \
    $@
