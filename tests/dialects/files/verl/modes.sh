#!/usr/bin/env bash
set -euo pipefail
die() {
  printf 'error: %s\n' "$*" >&2
  exit 64
}
MODE="${MODE:-}"
MORE=()
while (( $# > 0 )); do
  case "$1" in
    --mode) [[ $# -ge 2 ]] || die "--mode needs a value"; MODE="$2"; shift 2 ;;
    --) shift; MORE+=("$@"); break ;;
    *) MORE+=("$1"); shift ;;
  esac
done
[[ -n "${MODE}" ]] ||
  die "say --mode quick or full"
: "${MODEL:?say MODEL}"
case "${MODE}" in
  quick) : "${LENGTH:=2048}" ;;
  full) [[ "${EXACT:-0}" == 1 ]] && SEED=1 || SEED=2; : "${LENGTH:=8192}" ;;
  *) die "no mode '${MODE}'" ;;
esac
if [[ -v WANDB_API_KEY || -v WANDB_MODE ]]; then LOGGERS='[console,wandb]'; else LOGGERS='[console]'; fi
ROOT="$(mktemp -d /tmp/x.XXXXXX)"
trap 'rm -rf "${ROOT}"' EXIT
printf '%s\n' \
  '# @package _global_' \
  'model_engine: lite' \
  >"${ROOT}/lite.yaml"
sed -E -i 's/("layers"[[:space:]]*:[[:space:]]*)[0-9]+/\1 4/' "${ROOT}/config.json"
PASSED=()
for name in PATH PYTHONPATH; do
  PASSED+=("+ray_kwargs.ray_init.runtime_env.env_vars.${name}=\"${!name}\"")
done
IFS=, read -r -a files <<<"${TRAIN_FILES}"
ARGS=(
  # what is trained
  algorithm.adv_estimator=grpo
  algorithm.rollout_correction.rollout_is=token
  algorithm.rollout_correction.rollout_is_threshold=2.0
  actor_rollout_ref.actor.clip_ratio_high=0.28
  '~actor_rollout_ref.actor.engine.grad_offload'
  "hydra.searchpath=[file://${ROOT},pkg://lite.config]"
  data.max_response_length="${LENGTH}"
  trainer.logger="${LOGGERS}"
)
COMMAND=(python3 -m verl.trainer.main_ppo "${ARGS[@]}" "${PASSED[@]}" "${MORE[@]}")
if [[ "${DRY_RUN:-0}" == 1 ]]; then
  printf '%q ' "${COMMAND[@]}"; printf '\n'
  exit 0
fi
"${COMMAND[@]}" 2>&1 | tee "${ROOT}/log"
