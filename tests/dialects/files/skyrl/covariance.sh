set -x
LOSS="clip_cov"
uv run --isolated --extra vllm -m skyrl_train.entrypoints.main_base \
  trainer.algorithm.policy_loss_type="$LOSS" \
  trainer.algorithm.clip_cov.clip_ratio=0.0002 \
  trainer.algorithm.use_kl_loss=true \
  trainer.algorithm.kl_loss_coef=0.002 \
  "$@"
