uv run --isolated -m skyrl.train.entrypoints.main_base \
  trainer.algorithm.off_policy_correction.tis_ratio_type=token \
  trainer.algorithm.off_policy_correction.token_tis_ratio_clip_high="${TIS_HIGH:-3.0}" \
  trainer.algorithm.off_policy_correction.sequence_mask_metric=geometric \
  trainer.algorithm.advantage_estimator=grpo \
  generator.inference_engine.num_engines=${NUM_ENGINES}
