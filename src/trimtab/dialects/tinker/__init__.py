"""Tinker and its cookbook: what they read, what they compute, what is surprising about it."""

from trimtab.dialects.dialect import Dialect
from trimtab.dialects.tinker.advantage import advantage_of
from trimtab.dialects.tinker.correction import candidates, correction_of
from trimtab.dialects.tinker.examples import EXAMPLES
from trimtab.dialects.tinker.hints import HINTS
from trimtab.dialects.tinker.keys import KEYS, SECTION
from trimtab.dialects.tinker.loss import loss_of
from trimtab.dialects.tinker.remarks import REMARKS

DIALECT = Dialect(
    name="tinker",
    title="Tinker",
    version="tinker 0.36.0, tinker-cookbook 0.5.8",
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    is_loss=True,
    remarks=REMARKS,
    closed=(SECTION,),
    roots=("groups_per_batch", "dataset_builder", "kl_penalty_coef", "compute_post_kl", "behavior_if_log_dir_exists"),
    packages=("tinker_cookbook", "tinker"),
    programs=r"tinker(_cookbook)?[./]\w.*|tinker",
    entry_points=r"(?!.*/).*",
    own_keys=r"loss_fn_config(\..*)?|kl_penalty_coef|kl_discount_factor|compute_post_kl|behavior_if_log_dir_exists|groups_per_batch",
    apart=("A NaN log-prob of a sampler spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
    hints=HINTS,
    examples=EXAMPLES,
)

__all__ = ["DIALECT"]
