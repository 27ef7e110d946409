"""What a log shows for certain, because it is arithmetic; and what its settings say, where it holds them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trimtab.dialects import read as read_settings
from trimtab.dialects.recognise import recognise
from trimtab.dialects.sources.inherit import reach_of
from trimtab.dialects.sources.opening import OpenedFile
from trimtab.errors import ConfigError, ConfigWarning
from trimtab.explain.words import formulas
from trimtab.report.html import short_number
from trimtab.report.log import CLIP_FRACTION, GAP, ReadLog
from trimtab.report.series import Series

LEAST_STEPS = 10
"""Below, a log is too short for any of this."""
FAR = 0.05
"""Nats of mismatch KL at which a clip that saw them would act."""
SIGMAS = 5.0
GAP_KEYS = {
    "verl": "actor_rollout_ref.rollout.calculate_log_probs=True",
    "trl": "use_vllm with vllm_importance_sampling_correction, or trimtab.plugins.trl.Measure",
    "ms-swift": "log_rollout_offpolicy_metrics: true",
    "areal": "actor.use_decoupled_loss: true",
    "skyrl": "generator.sampling_params.logprobs: 1",
    "openrlhf": "--algo.advantage.is_correction_enable",
    "slime": "--get-mismatch-metrics",
    "miles": "--get-mismatch-metrics",
    "tunix": "sampler_is",
    "roll": "train_infer_correction",
    "open-instruct": "use_rho_correction",
}
"""What makes each framework log sampler against trainer."""


@dataclass(frozen=True)
class Certain:
    """One inference, and whether it is a fault or only something that is missing."""

    kind: str
    sentence: str
    is_fault: bool = True


def certain(read: ReadLog) -> list[Certain]:
    """Every inference that holds."""
    return [found for rule in RULES for found in rule(read)]


def _idle_clip(read: ReadLog) -> Iterator[Certain]:
    clip, far = read.series(CLIP_FRACTION).finite, read.series("drift/k3").finite
    row = read.row(CLIP_FRACTION)
    sees_sampler = row is not None and "sampler" in row.pair and "old" not in row.pair
    if len(clip) < LEAST_STEPS or clip.values.any() or sees_sampler or not far.median > FAR:
        return
    low, high = short_number(float(far.values.min()), 2), short_number(float(far.values.max()), 2)
    yield Certain(
        "idle clip",
        f"The clip never acted on {len(clip)} steps while the sampler was {low} to {high} nats away: "
        "its ratio is to the trainer's own pass.",
    )


def _negative_kl(read: ReadLog) -> Iterator[Certain]:
    kl, row = read.series("drift/kl").finite, read.row("drift/kl")
    if row is None or row.relation == "near" or "keep" in row.mask or len(kl) < LEAST_STEPS:
        return
    if (kl.values < 0).mean() >= 0.9 and _away(kl.values, below=True):
        yield Certain(
            "negative KL",
            f"{row.name} is below 0 on {int((kl.values < 0).sum())} of {len(kl)} steps, "
            f"{short_number(float(kl.values.mean()), 2)} on the mean. "
            "On the sampler's own tokens its expectation cannot be: the log-probs are of another distribution "
            "(temperature, top-p, column).",
        )


def _mean_ratio(read: ReadLog) -> Iterator[Certain]:
    ratio, row = read.series("ratio/mean").finite, read.row("ratio/mean")
    k3 = read.series("drift/k3").finite
    if row is None or row.relation != "same" or len(ratio) < LEAST_STEPS or not k3.median <= FAR:
        return
    mean = float(ratio.values.mean())
    if abs(mean - 1) > 0.02 and _away(ratio.values - 1, below=mean < 1):
        yield Certain(
            "mean ratio",
            f"{row.name} is {short_number(mean)} on the mean of {len(ratio)} steps with a mismatch KL of {short_number(k3.median, 2)}. "
            "On the sampler's own tokens a ratio is 1 in expectation: some of its probability is not counted, or is another's.",
        )


def _away(values: np.ndarray, *, below: bool) -> bool:
    """Whether a mean is on one side of 0 by more than chance."""
    error = float(values.std(ddof=1)) / np.sqrt(len(values))
    mean = float(values.mean()) * (-1 if below else 1)
    return mean > SIGMAS * error and mean > 1e-6


def _tails(read: ReadLog) -> Iterator[Certain]:
    rows = [read.row(name) for name in ("drift/k3", "drift/kl")]
    if any(row is None or row.relation == "near" or "keep" in row.mask for row in rows):
        return
    k3, kl = _together(read.series("drift/k3"), read.series("drift/kl"))
    if (
        len(k3) >= LEAST_STEPS
        and (more := float(np.median(k3 - kl))) > 0.01
        and more > 5 * float(np.median(np.abs(kl)))
    ):
        yield Certain(
            "few tokens",
            f"k3 is above k1 by {short_number(more, 2)} at the median, which is the mean ratio less 1: "
            "a few tokens with a ratio far above 1 own it.",
        )


def _together(one: Series, other: Series) -> tuple[np.ndarray, np.ndarray]:
    """The finite values at the steps of both."""
    one, other = one.finite, other.finite
    _, first, second = np.intersect1d(one.steps, other.steps, return_indices=True)
    return one.values[first], other.values[second]


NEVER_CONSTANT = (
    "drift/k3",
    "drift/kl",
    "drift/abs_log_r",
    "train/grad_norm",
    "rollout/reward",
    "policy/entropy",
    "rollout/length",
)


def _stuck(read: ReadLog) -> Iterator[Certain]:
    series = {name: read.series(name).finite for name in NEVER_CONSTANT if name in read.rows}
    repeated: dict[int, int] = {}
    moving = [
        each for each in series.values() if len(each) > LEAST_STEPS and len(np.unique(each.values)) > len(each) // 2
    ]
    for each in moving:
        same = (np.diff(each.values) == 0) & (each.values[1:] != 0)
        for step in each.steps[1:][same].tolist():
            repeated[step] = repeated.get(step, 0) + 1
    steps = sorted(step for step, count in repeated.items() if count >= 2 and count >= len(moving) - 1)
    if steps:
        yield Certain(
            "stuck batch",
            f"{max(repeated[step] for step in steps)} curves have the very values of the step before at step {steps[0]}"
            f"{f' and {len(steps) - 1} more' if len(steps) > 1 else ''}: the same batch was used twice, or the same row logged.",
        )


def _truncated_ess(read: ReadLog) -> Iterator[Certain]:
    row = read.row("weight/ess")
    high = read.series("weight/touched_high").finite
    if row is None or row.relation != "near" or len(high) < LEAST_STEPS:
        return
    ess = read.series("weight/ess").finite
    if ess.median > 0.9 and high.median > 0.02:
        yield Certain(
            "truncated sample size",
            f"{row.name} is {short_number(ess.median, 2)} while {short_number(100 * high.median, 2)} % of ratios are above the threshold: "
            "it is of weights already cut, and says nothing of the gap.",
        )


def _unmeasured(read: ReadLog) -> Iterator[Certain]:
    if read.framework is None or any(name in read.rows for name in (*GAP, "weight/mean", "kept_fraction")):
        return
    key = GAP_KEYS.get(read.framework.removesuffix("-async"))
    remedy = f" {key} logs it." if key else ""
    yield Certain(
        "not measured",
        f"No curve compares the sampler with the trainer: its log-probs are not kept, or not compared.{remedy}",
        is_fault=False,
    )


RULES: tuple[Callable[[ReadLog], Iterator[Certain]], ...] = (
    _idle_clip,
    _negative_kl,
    _mean_ratio,
    _tails,
    _stuck,
    _truncated_ess,
    _unmeasured,
)


@dataclass(frozen=True)
class LoggedSettings:
    """What the settings in a log compute, and the gravest of what there is to say of it."""

    framework: str
    lines: tuple[str, ...]


def logged_settings(read: ReadLog, most: int = 3) -> LoggedSettings | None:
    """What `explain` says of the settings in a log; None where it holds none that can be read."""
    if not read.log.settings:
        return None
    path = read.log.path
    opened = OpenedFile(path, reach_of(path), tree=read.log.settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        try:
            framework = (read.framework or "").removesuffix("-async") or recognise(opened).framework
            reading = read_settings(framework, opened)
        except ConfigError:
            return None
    rule = reading.correction
    lines = [*formulas(rule)] if rule is not None else []
    if reading.uncorrected:
        lines.append("Nothing is corrected: every trained token weighs 1.")
    order = {"risk": 0, "defect": 1, "surprise": 2}
    found = sorted((each for each in reading.findings if each.level in order), key=lambda each: order[each.level])
    said = [f"{each.level}: {each.key}: {each.text}" for each in found]
    return LoggedSettings(framework, (*lines[:2], *said[: most - 1]))
