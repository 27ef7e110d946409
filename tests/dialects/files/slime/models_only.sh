NLAYERS="${NLAYERS:-36}"
MODEL_ARGS=(
   --num-layers $NLAYERS
   --hidden-size 2560
   --use-rollout-logprobs
   --rollout-max-response-len 100
)
