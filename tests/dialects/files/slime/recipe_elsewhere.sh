ARGS=(
   --use-tis
   --custom-config-path "$SLIME_DIR/examples/elsewhere/bounds.yaml"
   --custom-tis-function-path examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp
   --advantage-estimator grpo
   --rollout-max-response-len 512
)
ray job submit -- python3 train.py ${ARGS[@]}
