: "${ESTIMATOR:=gdpo}"

uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base \
  trainer.algorithm.advantage_estimator="$ESTIMATOR" \
  trainer.algorithm.use_kl_loss=false \
  trainer.algorithm.eps_clip_high=0.27 \
  generator.n_samples_per_prompt=5 \
  "$@"
