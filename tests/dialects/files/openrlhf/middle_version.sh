deepspeed --module openrlhf.cli.train_ppo_ray \
   --algo.advantage.is_correction_enable \
   --algo.advantage.is_correction_type seq-mask-tis \
   --algo.advantage.is_correction_threshold 0.9 1.1 \
   --algo.advantage.estimator rloo --rollout.n_samples_per_prompt 4
