ARGS='--rlhf_type grpo --num_generations 8 --beta 0.001 --loss_type grpo'
PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' megatron rlhf $ARGS --importance_sampling_level sequence --epsilon 3e-4
