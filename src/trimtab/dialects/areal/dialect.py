"""AReaL: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.areal import SIGNATURE
from trimtab.dialects.areal.advantage import advantage_of
from trimtab.dialects.areal.correction import candidates, correction_of
from trimtab.dialects.areal.hints import HINTS
from trimtab.dialects.areal.keys import CLOSED, KEYS, SECTION
from trimtab.dialects.areal.loss import loss_of
from trimtab.dialects.areal.remarks import REMARKS
from trimtab.dialects.framework import Dialect, Version

DIALECT = Dialect(
    SIGNATURE,
    version="1.0.4",
    releases=("1.0.4", "2.0.0"),
    versions=(
        Version("before adv_norm became a section", ("group_adv_norm", "group_reward_norm")),
        Version("before #1088", ("behave_imp_weight_cap", "behave_imp_weight_mode", "behav_imp_weight_cap")),
    ),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    closed=(SECTION, *CLOSED),
    apart=(
        "A non-finite log-ratio counts as 0 (kept, weight 1) with metric ratio and is rejected with KL metrics; ours takes the "
        "token as never trained.",
        "Under mean_level batch and std_level group the only valid element of a whole batch becomes 0; ours keeps its value.",
    ),
    candidates=candidates,
    hints=HINTS,
)
