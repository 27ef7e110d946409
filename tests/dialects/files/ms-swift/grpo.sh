# It isn't long.
CUDA_VISIBLE_DEVICES=0,1 \
NPROC_PER_NODE=2 \
swift rlhf \
    --rlhf_type grpo \
    --model Qwen/Qwen2.5-7B \
    --reward_funcs accuracy format \
    --num_generations 8 \
    --rollout_importance_sampling_mode token_truncate \
    --rollout_importance_sampling_threshold 2.0 \
    --epsilon 0.2 --epsilon_high 0.28 \
    --loss_type grpo
