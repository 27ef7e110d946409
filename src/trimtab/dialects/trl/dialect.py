"""TRL: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.framework import Dialect, Version
from trimtab.dialects.trl import SIGNATURE
from trimtab.dialects.trl.advantage import advantage_of
from trimtab.dialects.trl.correction import candidates, correction_of
from trimtab.dialects.trl.hints import HINTS
from trimtab.dialects.trl.keys import KEYS
from trimtab.dialects.trl.loss import loss_of
from trimtab.dialects.trl.remarks import REMARKS

DIALECT = Dialect(
    SIGNATURE,
    version="1.16.0",
    versions=(Version("before clip_max", ("vllm_importance_sampling_cap",)),),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    entry_points=r"(?!.*\.py$).*|(.*/)?examples/scripts/\w+\.py",
    implied=(
        (r".*AsyncGRPO.*|(.*/)?async_grpo\w*\.py", {"max_staleness": 4}),
        (r".*RLOO.*|(.*/)?trl rloo|(.*/)?rloo\w*\.py", {"normalize_advantages": False, "beta": 0.05}),
    ),
    apart=("A NaN log-ratio counts as 0, so the token weighs 1; ours takes the token as never trained.",),
    candidates=candidates,
    contexts=({}, {"use_vllm": True}),
    hints=HINTS,
)
