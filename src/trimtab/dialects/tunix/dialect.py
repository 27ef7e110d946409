"""Tunix: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.framework import Dialect, Version
from trimtab.dialects.tunix import SIGNATURE
from trimtab.dialects.tunix.advantage import advantage_of
from trimtab.dialects.tunix.correction import candidates, correction_of
from trimtab.dialects.tunix.hints import HINTS
from trimtab.dialects.tunix.keys import KEYS, PROPOSED
from trimtab.dialects.tunix.loss import loss_of
from trimtab.dialects.tunix.remarks import REMARKS

DAPO = {
    "epsilon_high": 0.28,
    "beta": 0.0,
    "loss_agg_mode": "token-mean",
    "overlong_buffer": {"enable": True},
}
"""What a DAPOConfig holds unless it is told otherwise."""
DR_GRPO = {"advantage_estimator": "drgrpo", "loss_agg_mode": "sequence-mean-token-scale"}
PPO = {"policy_loss_fn": "ppo", "advantage_estimator": "gae"}

DIALECT = Dialect(
    SIGNATURE,
    version="0.1.7",
    versions=(
        Version("as proposed after 0.1.7", PROPOSED),
        Version("after 0.1.7", ("sampler_is_length_buckets", "reward_num_workers"), is_read=False),
    ),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    implied=(
        (r"tunix\.rl\.agentic\..*", {"training_mode": "agentic_grpo"}),
        (r"tunix\.rl\.grpo\.(dapo_learner.*|.*DAPO.*)", DAPO),
        (r"tunix\.rl\.grpo\.(drgrpo_learner.*|.*DrGRPO.*)", DR_GRPO),
        (r"tunix\.rl\.ppo\..*", PPO),
    ),
    apart=(
        "A turn without log-probs is taken to have drawn each token with probability 1; ours leaves such tokens out.",
    ),
    candidates=candidates,
    hints=HINTS,
)
