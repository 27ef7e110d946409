: "${DATA:="$HOME/data"}"
uv run --isolated --extra fsdp \
  -m examples.train.gold_distillation.main_gold_distill \
  trainer.algorithm.advantage_estimator=no_op \
  trainer.algorithm.use_kl_loss=false \
  trainer.algorithm.gold_beta=0.5 \
  $@
