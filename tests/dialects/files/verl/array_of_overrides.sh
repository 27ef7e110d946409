#!/usr/bin/env bash
# Don't let an apostrophe in a comment upset anybody.
set -xeuo pipefail

project_name='DAPO'
max_prompt_length=$((1024 * 2))
max_response_length=$((1024 * 8))
clip_low=0.2
clip_high=0.28
NNODES=${NNODES:-2}
DATA=${HOME}/data

python3 -m verl.trainer.main_ppo \
    data.train_files="${DATA}/train.parquet" \
    data.max_prompt_length=${max_prompt_length} \
    data.max_response_length=${max_response_length} \
    actor_rollout_ref.actor.clip_ratio_low=${clip_low} \
    actor_rollout_ref.actor.clip_ratio_high=${clip_high} \
    actor_rollout_ref.actor.use_kl_loss=False \
    actor_rollout_ref.rollout.max_num_batched_tokens=$((max_prompt_length + max_response_length)) \
    algorithm.adv_estimator=grpo \
    algorithm.rollout_correction.rollout_is=token \
    algorithm.rollout_correction.rollout_is_threshold=2.0 \
    trainer.nnodes="${NNODES}" \
    trainer.logger='["console","wandb"]' $@
