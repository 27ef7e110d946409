set -x
python3 -m openrlhf.cli.train_ppo_ray \
   --vllm_num_engines 2 \
   --advantage_estimator rloo \
   --n_samples_per_prompt 4 \
   --init_kl_coef 0.002 \
   --use_kl_loss \
   --kl_estimator k3 \
   --normalize_reward
