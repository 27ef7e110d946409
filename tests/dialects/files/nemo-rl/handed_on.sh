#!/bin/bash
SETTINGS=${SETTINGS:-}
LAG=${LAG:-1}
export COMMAND="CACHE=/tmp/cache \
  uv run --frozen ./examples/run_grpo_math.py \
  grpo.num_prompts_per_step=64 \
  loss_fn.ratio_clip_max=0.28"
if [ "${LAG}" -gt 0 ]; then
  export COMMAND="${COMMAND} \
  loss_fn.use_importance_sampling_correction=True"
fi
if [ -n "${SETTINGS}" ]; then
  export COMMAND="${COMMAND} ${SETTINGS}"
fi
sbatch --nodes=4 --comment='{"why": "idle"}' ray.sub | tee /dev/stderr | grep -o '[0-9]\+' > job.txt
