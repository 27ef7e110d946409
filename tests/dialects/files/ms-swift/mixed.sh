NNODES=$WORLD_SIZE \
torchrun \
    --nproc_per_node=8 \
    --nnodes=${WORLD_SIZE} \
    swift/cli/rlhf.py \
    --rlhf_type grpo \
    --dataset x#1000 \
    --chord_sft_dataset x#2000 \
    --advantage_estimator rloo \
    --loss_type grpo
