set -x
DATA_DIR="$HOME/data/dapo"
CLIP_RATIO_LOW=0.2
CLIP_RATIO_HIGH=0.28
LOSS_REDUCTION="token_mean"
OVERLONG_BUFFER_LEN=$((1024 * 4))
: "${MAX_STALENESS_STEPS:=8}"
USE_TIS=true
TIS_IMP_RATIO_CAP=2.0
uv run --isolated --extra fsdp -m examples.train.algorithms.dapo.main_dapo_fully_async \
  data.train_data="['$DATA_DIR/train.parquet']" \
  trainer.fully_async.max_staleness_steps=${MAX_STALENESS_STEPS} \
  trainer.algorithm.use_tis=$USE_TIS \
  trainer.algorithm.tis_imp_ratio_cap=$TIS_IMP_RATIO_CAP \
  trainer.algorithm.advantage_estimator="grpo" \
  trainer.algorithm.policy_loss_type="dual_clip" \
  trainer.algorithm.clip_ratio_c=10.0 \
  trainer.algorithm.loss_reduction=$LOSS_REDUCTION \
  trainer.algorithm.eps_clip_low=$CLIP_RATIO_LOW \
  trainer.algorithm.eps_clip_high=$CLIP_RATIO_HIGH \
  trainer.algorithm.use_kl_loss=false \
  trainer.resume_mode=null \
  $@
