python3 -m openrlhf.cli.train_ppo_ray \
   --pretrain weights \
   --vllm_num_engines 2 \
   --n_samples_per_prompt 8 \
   --advantage_estimator rloo \
   --init_kl_coef 0.01 \
   --use_kl_loss \
   --kl_estimator k2 \
   --use_vllm_logprobs
