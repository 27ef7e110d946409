#!/usr/bin/env bash
# The server that answers a client's requests; what a client cannot say stands in one JSON object.
set -euo pipefail

LOW="${LOW:-0.98}"
HIGH="${HIGH:-1.02}"
ALPHA="${ALPHA:-64}"
EXTRA=", \"trainer.policy.model.lora.alpha\": $ALPHA"

DEFAULTS=$(cat <<JSON
{
  "trainer.strategy": "megatron",
  "trainer.placement.policy_num_nodes": $SLURM_NNODES,
  "trainer.algorithm.policy_loss_type": "dual_clip",
  "trainer.algorithm.clip_ratio_c": 6.0,
  "trainer.algorithm.loss_reduction": "sequence_mean",
  "trainer.algorithm.use_kl_loss": false,
  "trainer.algorithm.off_policy_correction.sequence_mask_metric": "geometric",
  "trainer.algorithm.off_policy_correction.geo_mask_low": $LOW,
  "trainer.algorithm.off_policy_correction.geo_mask_high": $HIGH,
  "generator.batched": true$EXTRA
}
JSON
)
BACKEND_CONFIG="${BACKEND_CONFIG:-$DEFAULTS}"

uv run --extra tinker -m skyrl.tinker.api \
  --base-model "some/model" \
  --port 8000 \
  --backend-config "$BACKEND_CONFIG" \
  "$@"
