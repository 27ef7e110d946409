#!/bin/bash
DELTA=${TRUST:-2e-3}
SLOTS=$(((POOL + 7 - 1) / 7))
GRADIENT=(
   # the mean of the batch is the baseline
   --advantage-estimator flash_reinforce
   --use-tis
   --custom-tis-function-path slime.backends.megatron_utils.loss.binary_kl_trust_region_function
   --tis-binary-kl-threshold "${DELTA}"
)
if [ -n "${KEEP:-}" ]; then
   (
      while sleep 300; do
         newest=$(cat "${OUT}/latest.txt" 2>/dev/null) || continue
         ls -d "${OUT}"/iter_[0-9]* | sort | while read -r each; do
            if [ "$((10#${each##*/iter_}))" -lt "$((10#${newest}))" ]; then rm -rf -- "${each}"; fi
         done
      done
   ) &
   trap 'kill $! 2>/dev/null || true' EXIT
fi
ray job submit --address=local -- python3 train.py --hf-checkpoint m --sglang-server-concurrency $SLOTS "${GRADIENT[@]}"
