#!/bin/bash
set -euo pipefail
exec > >(tee -a "${LOG:-run.log}") 2>&1
STEPS_AHEAD=${STEPS_AHEAD:-0}

elect() {
  if mkdir "${LOCK}" 2>/dev/null; then
    IS_HEAD=1
  else
    IS_HEAD=0
  fi
}

ready() {
  local attempt
  for attempt in $(seq 1 "${ATTEMPTS:-3}"); do
    if python3 - <<PY
import sys
expected = {"gpus": ${GPUS:-8}}
sys.exit("the head's port isn't open" if not expected else 0)
PY
    then
      return 0
    fi
  done
}

submit() {
  local LOAD=()
  if [[ "${FROM:-}" == */checkpoints/iter_* ]]; then
    local step
    step="${FROM##*/}"
    LOAD+=(--load "${FROM%/*}" --ckpt-step "$((10#${step#iter_}))")
  fi
  GRADIENT=(
    --advantage-estimator grpo
    --kl-loss-coef 0.01
    --eps-clip 0.1
  )
  if (( STEPS_AHEAD > 0 )); then
    GRADIENT+=(--use-tis)
  fi
  ray job submit -- python3 "${REPO}/train_async.py" --hf-checkpoint m "${LOAD[@]}" "${GRADIENT[@]}"
}

IS_HEAD=0
elect
if [[ "${IS_HEAD}" -eq 1 ]]; then
  ready
  submit
else
  while ray status --address="${HEAD}:6379" >/dev/null 2>&1; do
    sleep 60
  done
fi
