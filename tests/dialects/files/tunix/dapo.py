from tunix.rl.grpo.dapo_learner import DAPOConfig, DAPOLearner

config = DAPOConfig(num_generations=8, epsilon=0.2)
learner = DAPOLearner(rl_cluster=None, reward_fns=[], algo_config=config)
