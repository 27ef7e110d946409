#!/bin/bash
set -x
SCRIPT_DIR="$(dirname "$0")"
WORK_DIR=$(cd "$SCRIPT_DIR/../.." && pwd)
python3 -m openrlhf.cli.train_ppo_ray \
   --vllm_num_engines 8 \
   --init_kl_coef 1e-4 \
   --gamma 1.0 \
   --use_kl_loss \
   --kl_estimator k2 \
   --advantage_estimator reinforce_baseline \
   --eps_clip_low_high 0.2 0.27 \
   --save_path "${WORK_DIR}/exp" \
   --n_samples_per_prompt 16 \
   --generate_max_len 8192 \
   --eval_n_samples_per_prompt 4 \
   --enable_vllm_is_correction \
   --vllm_is_truncated_threshold 0.5 5.0 \
   --use_icepop
