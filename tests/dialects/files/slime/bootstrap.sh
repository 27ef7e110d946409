#!/bin/bash
set -euo pipefail
HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"
source "${HERE}/../bootstrap_utils.sh"
layers=()
for ((i=0; i<4; i++)); do
  if (( i < 1 )); then layers+=(0); else layers+=(1); fi
done
printf -v FREQ "[%s]" "$(IFS=', '; echo "${layers[*]}")"
exec > >(tee -a "${LOG}") 2>&1
short_name() {
  local candidate="$1"
  if (( ${#candidate} <= 128 )); then
    printf '%s\n' "${candidate}"
    return 0
  fi
  suffix=$(python3 - "$candidate" <<'PY'
import sys
print(sys.argv[1][:8])  # it's short
PY
)
  printf '%.119s-%s\n' "$candidate" "$suffix"
}
wait_for_ray() {
  local attempt
  for attempt in $(seq 1 10); do
    if python3 - <<PY
import sys
sys.exit(0 if ${NODES} > 1 else 1)
PY
    then
      return 0
    fi
  done
  return 1
}
ADDRESS="$(
  OUT="${OUT:-}" python3 - <<'PY'
import re
print(re.search(r"--address='([0-9]+)'", "x"))
PY
)" || true
for host in $(awk '{print $1}' "${HOSTS}"); do
  [[ -z "${host}" ]] && continue
  ssh "root@${host}" \
    "pkill -9 sglang ; \
     ray start --address=${ADDRESS}:6379 --num-gpus 8" &
done
wait
MISC=()
ALGO_ARGS=(
   --advantage-estimator grpo
   --eps-clip 0.2
   --eps-clip-high 0.28
   --use-tis
   --n-samples-per-eval-prompt 16
)
JSON="{
  \"env_vars\": {
    \"NVLINK\": \"${HAS_NVLINK:-0}\"
  }
}"
ray job submit --runtime-env-json="${JSON}" -- python3 -u "$SLIME/train.py" \
   --moe-layer-freq "$FREQ" \
   ${ALGO_ARGS[@]} \
   ${MISC[@]+"${MISC[@]}"} \
   2>&1 | tee "${LOG}"
