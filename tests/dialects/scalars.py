"""The scalars a framework logs against ours under its names: how they are compared, and which are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from torch import Tensor

from tests.parity import tally
from trimtab.config.losses import Gspo
from trimtab.dialects import Reading
from trimtab.logged import logged

CLOSE = 1e-5
ROUNDING = 1e-6
"""Frameworks subtract float32 numbers near 1 to 8 (k3 as e^ℓ − 1 − ℓ): what is left is known to about this."""
"""Relative to max(1, |x|)."""

Inputs = Mapping[str, Tensor]


def _always(reading: Reading, inputs: Inputs) -> bool:
    return True


@dataclass(frozen=True)
class LeftOut:
    """Scalars of a framework that are not compared, and why."""

    framework: str
    names: str
    why: str
    when: Callable[[Reading, Inputs], bool] = _always


def _empty_samples(reading: Reading, inputs: Inputs) -> bool:
    mask = inputs["mask"]
    return bool(((mask.sum(-1) == 0) & inputs.get("sample_mask", mask.any(-1))).any())


def _only_logged(reading: Reading, inputs: Inputs) -> bool:
    rule = reading.correction
    return rule is not None and rule.policies == "bypass" and rule.weight is not None and rule.weight.level == "one"


LEFT_OUT = (
    LeftOut(
        "verl",
        "rollout_corr/rollout_is_*",
        "bypass_mode with ppo_clip: it works out weights only to log them; the rule that is read has none",
        _only_logged,
    ),
    LeftOut(
        "nemo-rl",
        "sampling_importance_ratio",
        "use_importance_sampling_correction off: logged of weights that are not used; the rule that is read has none",
        lambda reading, inputs: (
            reading.correction is not None
            and reading.correction.weight is not None
            and reading.correction.weight.level == "one"
        ),
    ),
    LeftOut(
        "nemo-rl",
        "num_valid_samples",
        "it counts rows by sample_mask; where such a row has no token, ours cannot tell it from a row left out",
        _empty_samples,
    ),
    LeftOut(
        "nemo-rl",
        "is_oob_ratio",
        "seq-mask-tis: a mean over sample_mask, with rows that have no token",
        lambda reading, inputs: (
            bool(reading.correction and reading.correction.gates) and _empty_samples(reading, inputs)
        ),
    ),
    LeftOut(
        "openrlhf",
        "ppo_kl",
        "gspo with a correction: drift from proximal, which that loss does not read",
        lambda reading, inputs: (
            isinstance(reading.loss, Gspo)
            and reading.correction is not None
            and reading.correction.policies == "bypass"
        ),
    ),
    *(
        LeftOut("trl", names, "of rewards and answers, before any correction, loss or advantage")
        for names in ("reward", "reward_std", "rewards/*", "frac_reward_zero_std", "completions/*", "num_tokens")
    ),
    LeftOut("trl", "entropy", "of the logits, which a loss does not see"),
    LeftOut(
        "ms-swift",
        "fipo/*",
        "means of the weight inside the loss and of the sum it comes from, which are not among our metrics",
    ),
    *(
        LeftOut("areal", names, "log-probs and entropies as they came in, and counts of padding")
        for names in ("*_logp/*", "entropy/*", "n_tokens", "compute_logp/*", "*__count")
    ),
    LeftOut(
        "slime",
        "opsm_clipfrac_sum",
        "with gaps in the mask it counts masked tokens too, which here can change nothing",
        lambda reading, inputs: not bool(inputs["mask"].all()),
    ),
)

SPREADS = {"verl": ("*_is_std", "*_rs_*_std")}
"""Compared as variances: verl takes E[x²] − E[x]² in float32, whose root keeps few digits where the data hardly vary. Its
`seq_std` are two-pass and compared as they are."""

RECORDED_AS: dict[tuple[str, str], Callable[[Mapping[str, Any], Mapping[str, Any]], Any]] = {
    ("areal", "clip_ratio"): lambda names, ours: names["clip_ratio/avg"],
    ("areal", "dual_clip_ratio"): lambda names, ours: names["dual_clip_ratio/avg"],
    ("areal", "approx_kl"): lambda names, ours: names["approx_kl/avg"],
    ("areal", "filtered_fraction"): lambda names, ours: names["rs_filtered_fraction"],
    ("areal", "stage1_rejected_sequences"): lambda names, ours: (
        ours["gate/0-ratio-sequence/rejected_sequences"] * ours["sequences"]
    ),
}
"""Names of the vectors that the framework itself does not log so."""


def left_out(reading: Reading, name: str, inputs: Inputs) -> bool:
    """Whether a scalar is not compared here."""
    return any(
        each.framework == reading.framework and fnmatch(name, each.names) and each.when(reading, inputs)
        for each in LEFT_OUT
    )


def same_scalars(
    reading: Reading, metrics: Mapping[str, Any], theirs: Mapping[str, Any], inputs: Inputs, kind: str
) -> None:
    """Every scalar the framework logs, save those left out."""
    found = logged(reading, metrics)
    compared = 0
    for name, value in theirs.items():
        if left_out(reading, name, inputs):
            continue
        renamed = RECORDED_AS.get((reading.framework, name))
        ours, want = float(renamed(found, metrics) if renamed else found[name]), float(value)
        if not name.endswith("seq_std") and any(fnmatch(name, each) for each in SPREADS.get(reading.framework, ())):
            ours, want = ours**2, want**2
        assert abs(ours - want) <= CLOSE * abs(want) + ROUNDING, f"{name}: ours {ours}, theirs {want}"
        compared += 1
    tally.count(reading.framework, "metrics", kind, compared)
