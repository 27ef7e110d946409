CUDA_VISIBLE_DEVICES=2 \
swift rollout \
    --model m

# then train
NPROC_PER_NODE=2 \
swift rlhf \
    --rlhf_type grpo \
    --teacher_model t \
    --advantage_estimator grpo \
    --system """Put it within \\boxed{}.""" \
    --rollout_importance_sampling_mode token_truncate \
    --reward_funcs accuracy format\
    --beta 0
