#!/bin/bash
#SBATCH --nodes=2                # how many
if [[ -n "${SLURM_SUBMIT_DIR:-}" ]]; then cd "$SLURM_SUBMIT_DIR"; fi
export WANDB_API_KEY=.... # yours
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
nodes_array=($nodes)
head_node=${nodes_array[0]}
if [[ "$head_ip" == *" "* ]]; then
  IFS=' ' read -ra ADDR <<<"$head_ip"
  if [[ ${#ADDR[0]} -gt 16 ]]; then head_ip=${ADDR[1]}; else head_ip=${ADDR[0]}; fi
fi
srun --nodes=1 -w "$head_node" uv run --active -- ray start --head --block &
uv run --active -- python - << 'EOF'
import ray
ray.init(address="auto")
EOF
srun --overlap --nodes=$NNODES -w "$head_node" \
    uv run --python "$PYTHON" --active --extra vllm \
    -m examples.algorithms.dapo.main_dapo \
    trainer.algorithm.policy_loss_type="sapo" \
    trainer.algorithm.loss_reduction=sequence_mean \
    trainer.algorithm.use_kl_loss=false \
    trainer.algorithm.tau_pos=1.0 \
    trainer.algorithm.tau_neg=1.1 \
    +trainer.algorithm.overlong_buffer.len=512 \
    $@
