for v in $(env | awk -F= '/^PMI_/{print $1}'); do
    unset "$v"
done
for CAP in 3.5; do
    python3 -m verl.trainer.main_ppo algorithm.rollout_correction.rollout_is=token \
        algorithm.rollout_correction.rollout_is_threshold=${CAP}
done
