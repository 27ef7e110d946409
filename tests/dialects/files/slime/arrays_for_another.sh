#!/bin/bash
# The flags are set here; a script of the cluster's, sourced last, starts the training with them.
CONVERT=(--hf-checkpoint /models/small)
python3 tools/convert.py "${CONVERT[@]}" --save /models/converted
LOSS_FLAGS=(
  --advantage-estimator gspo
  --eps-clip 3e-4
  --eps-clip-high 4e-4
)
source /cluster/submit.sh
