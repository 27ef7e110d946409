#!/bin/bash
set -euo pipefail
ROOT=${ROOT:-/data/project}
JOB="${ROOT}/job.sh"
exec > >(tee "${ROOT}/run.log") 2>&1

convert() {
  python -m torch.distributed.run --nproc-per-node 1 \
    "${ROOT}/tools/convert.py" --hf-checkpoint "${ROOT}/model" --save "${ROOT}/converted"
}
convert

POLICY_ARGS=(
  --advantage-estimator grpo
  --eps-clip 0.2
  --eps-clip-high 0.3
  --use-tis
  --tis-clip 3.0
)
COMMAND=(
  python3 "${ROOT}/train_async.py"
  --hf-checkpoint "${ROOT}/model"
  --n-samples-per-prompt 8
  "${POLICY_ARGS[@]}"
)
{
  printf '#!/bin/bash\n'
  printf 'exec '
  printf '%q ' "${COMMAND[@]}"
} > "${JOB}"
ray job submit --address="http://127.0.0.1:8265" -- bash "${JOB}"
