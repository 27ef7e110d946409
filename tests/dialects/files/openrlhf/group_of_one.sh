set -x

python3 -m openrlhf.cli.train_ppo_ray \
   --pretrain some/model \
   --vllm_num_engines 2 \
   --n_samples_per_prompt 1 \
   --init_kl_coef 1e-4 \
   --eps_clip 0.3 \
   --advantage_estimator reinforce_baseline
