#!/bin/bash
#SBATCH -N 2                       # don't ask
OPENRLHF_PATH=<OPENRLHF_ROOT_PATH>
JOBLOG="$(realpath .)/train-$SLURM_JOB_ID.log"
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
nodes_array=( $nodes )
worker_num=$((SLURM_JOB_NUM_NODES))
for ((i = 1; i < worker_num; i++)); do
node_i=${nodes_array[$i]}
srun --nodes=1 -w "$node_i" bash -c "ray start --address $ip_head --block" &>> ${JOBLOG} &
sleep 1s;
done
srun --overlap --nodes=1 -w "$node_1" bash -c \
"pip install ray[default]==2.12.0 \
&& /root/.local/bin/ray job submit --address=http://localhost:8265 \
    --runtime-env-json='{\"working_dir\": \"/openrlhf\"}' \
    -- python3 -m openrlhf.cli.train_ppo_ray \
    --vllm_num_engines 4 \
    --advantage_estimator group_norm \
    --n_samples_per_prompt 8 \
    --eps_clip 0.3 \
    --init_kl_coef 0.01 \
    --use_wandb {wandb_token}" &>> ${JOBLOG}
