"""Tinker and its cookbook: what they read, what they compute, what is surprising about it."""

from trimtab.dialects.framework import Dialect
from trimtab.dialects.tinker import SIGNATURE
from trimtab.dialects.tinker.advantage import advantage_of
from trimtab.dialects.tinker.correction import candidates, correction_of
from trimtab.dialects.tinker.hints import HINTS
from trimtab.dialects.tinker.keys import KEYS, NEWEST, RELEASES, SECTION
from trimtab.dialects.tinker.loss import ASYNCHRONOUS, loss_of
from trimtab.dialects.tinker.remarks import REMARKS

DIALECT = Dialect(
    SIGNATURE,
    version=NEWEST,
    releases=RELEASES,
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    others=("max_steps",),
    is_loss=True,
    remarks=REMARKS,
    closed=(SECTION,),
    entry_points=r"(?!.*/).*",
    implied=(
        (
            r"(.*/)?tinker_cookbook[./]recipes[./](math_rl[./]train|rubric[./](train|prometheus_experimental)|rl_loop)(\.py)?",
            {"loss_fn": ASYNCHRONOUS},
            NEWEST,
        ),
    ),
    apart=("A NaN log-prob of a sampler spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
    hints=HINTS,
)
