TEACHERS=(
   --advantage-estimator grpo

   --use-mopd
   # --mopd-teacher-loads is for the other mode
   --mopd-eps-low 0.2    # the least weight
   --mopd-eps-high 5.0
)
ENVIRONMENT=$(python3 -c "
import json, os
print(json.dumps({'env_vars': {'URLS': os.environ.get('URLS', '')}}))
")
ray job submit --runtime-env-json="$ENVIRONMENT" -- python3 ../slime/train.py --colocate --num-epoch 1 --rollout-batch-size 4 \
  --global-batch-size 16 --rollout-temperature 0.8 --rollout-shuffle --balance-data --input-key messages --save-interval 10 \
  --no-save-optim --update-weight-buffer-size $((1024 * 1024)) --qkv-format bshd ${TEACHERS[@]}
