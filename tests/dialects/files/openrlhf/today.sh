python3 -m openrlhf.cli.train_ppo_ray --algo.advantage.is_correction_level token --algo.advantage.is_correction_mode clip \
   --algo.advantage.is_correction_threshold 0.5 5.0 --actor.eps_clip_low_high 0.2 0.28 --actor.num_nodes 1
