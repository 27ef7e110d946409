device=$(python3 - <<'EOF'
from verl.utils.device import get_device_name
print(get_device_name())  # it's a name
EOF
)
more=()
if [ "$device" == "npu" ]; then more+=(+actor_rollout_ref.rollout.engine_kwargs.vllm.mode="FULL"); fi
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=codapo \
    +algorithm.codapo_top_k=4 \
    actor_rollout_ref.actor.loss_agg_mode=token-mean \
    "${more[@]}" \
    | tee "$(pwd)/out.txt"
