#!/bin/bash
set -ex

ROLLOUT_ARGS=(
   --prompt-data prompts.jsonl
   --rollout-batch-size 16
   --n-samples-per-prompt 8
   --rollout-max-response-len 2048
   --dynamic-sampling-filter-path miles.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std
)

GRPO_ARGS=(
   --advantage-estimator grpo
   --eps-clip 0.2
   --eps-clip-high 0.3
)

ray job submit --address="http://127.0.0.1:8265" -- python3 train.py \
   --hf-checkpoint weights \
   ${ROLLOUT_ARGS[@]} \
   ${GRPO_ARGS[@]}
