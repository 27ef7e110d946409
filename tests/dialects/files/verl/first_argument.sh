TP=${1:-4}
CAP=${2:-1.5}
shift 2
if [ "$#" -gt 0 ]; then echo "it's too many"; exit 1; fi
python3 -m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml' \
    actor_rollout_ref.rollout.tensor_model_parallel_size=${TP} \
    algorithm.rollout_correction.rollout_is=sequence \
    algorithm.rollout_correction.rollout_is_threshold=$CAP \
    "${@:3}"
