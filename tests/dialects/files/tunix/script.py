from tunix.rl import rl_cluster as rl_cluster_lib
from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner

BETA = 0.08
grpo_config = GRPOConfig(
    num_generations=4,
    num_iterations=2,
    beta=BETA,
    epsilon=0.2,
    kl_loss_mode="low_var_kl",
)
learner = GRPOLearner(rl_cluster=None, reward_fns=[], algo_config=grpo_config)
