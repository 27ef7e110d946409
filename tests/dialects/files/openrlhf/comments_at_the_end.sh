set -x
python3 -m openrlhf.cli.train_ppo_ray \
   --init_kl_coef 0.02 \
   --advantage_estimator rloo \
   --n_samples_per_prompt 4 \
   # --use_kl_loss  # not here: the reward pays it
   # --kl_estimator k3 # goes with it

# the judge's scores are whitened
