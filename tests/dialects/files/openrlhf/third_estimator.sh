set -x

ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{"working_dir": "/work"}' \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --pretrain some/model \
   --reward_pretrain some/judge \
   --rollout_batch_size 512 \
   --n_samples_per_prompt 4 \
   --init_kl_coef 1e-3 \
   --use_kl_estimator_k3 \
   --advantage_estimator rloo \
   --normalize_reward
