"""Where the mismatch comes from: fresh tokens (engine, precision), age (staleness), or samples cut by top-k and top-p."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.report.findings.finding import Advice, Remedy, RunFinding
from trimtab.report.html import percent, short_number
from trimtab.report.run import Run
from trimtab.report.tokens import Tokens, by_age, tokens

AGREE = 1e-4
"""Mean k3 of fresh tokens up to which two policies agree: the same weights in fp32 give 1e-12, in bf16 under 1e-5, in int8 4e-5."""
OFF = 1e-3
"""Mean k3 of fresh tokens from which they do not: fp8 gives 4e-4, five bits 3e-3, int4 0.04, three bits 0.8."""
ENOUGH = 50
"""Fresh tokens under which nothing is said of them."""
EXACT = ("fp32", "bf16")
"""Precisions whose rounding alone stays far under `AGREE`."""


def origin(run: Run) -> Iterator[RunFinding]:
    """What fresh tokens say, judged by themselves and not against the others; and whether age adds to it."""
    trained = tokens(run)
    bands = by_age(trained) if trained is not None else []
    if trained is None or not bands or bands[0].label != "0" or bands[0].tokens < ENOUGH:
        return
    fresh, eldest = bands[0], bands[-1]
    grows = eldest.k3 > 3 * fresh.k3  # never where there is one band only
    numbers = f"Mean k3 is {short_number(fresh.k3)} at age 0"
    numbers += f" and {short_number(eldest.k3)} at age {eldest.label}" if len(bands) > 1 else ""
    if fresh.k3 >= OFF:
        yield _fresh_off(run, trained, numbers, grows=grows)
    elif grows and eldest.k3 >= OFF:
        yield _grows_with_age(numbers, agree=fresh.k3 < AGREE)


def _fresh_off(run: Run, trained: Tokens, numbers: str, *, grows: bool) -> RunFinding:
    also = " Age adds to it." if grows else ""
    cause, remedy = _likely_cause(run, trained)
    return RunFinding(
        "warning",
        "Fresh tokens are off already",
        f"{numbers}: the policies differ where no version lies between them, by more than 8-bit weights do "
        f"(4e−5 to 4e−4). {cause}{also}",
        "by-age",
        remedy=remedy,
    )


def _grows_with_age(numbers: str, *, agree: bool) -> RunFinding:
    how = "the two policies agree on fresh tokens" if agree else "small on fresh tokens, though more than bf16 gives"
    return RunFinding(
        "note", "Mismatch grows with age", f"{numbers}: {how}, and they part as weights move on.", "by-age"
    )


def spans_versions(trained: Tokens) -> bool:
    """Whether most fresh tokens stand in responses that older weights began."""
    fresh, older = trained.row[trained.age == 0], trained.row[trained.age > 0]
    return len(fresh) > 0 and float(np.isin(fresh, older).mean()) > 0.5


def _likely_cause(run: Run, trained: Tokens) -> tuple[str, Remedy]:
    """The likely cause of a mismatch of fresh tokens, by the settings of the run, and what answers it."""
    precision = run.setting("rollout.precision", "fp32")
    if precision not in EXACT:
        return f"Likely the quantised sampler: rollout.precision is {precision}.", "finer precision"
    if run.setting("rollout.in_flight") == "keep_cache" and spans_versions(trained):
        return (
            "Likely the cache: with rollout.in_flight keep_cache, new weights go on from what older ones computed.",
            "recomputed cache",
        )
    return (
        f"rollout.precision is {precision}, which does not explain it: look at sampling settings, the weight transfer and the "
        "engine's own arithmetic.",
        "finer precision",
    )


def cut_samples(run: Run) -> Iterator[RunFinding]:
    """What replay changed; or that nothing was replayed and ratios stand at what the cut left."""
    kept = run.series("head/kept_mass").median
    if kept == kept:
        yield _replay_note(run, kept)
    elif run.setting("rollout.head", "none") == "none" and _is_cut(run):
        yield _not_replayed(run)


def _is_cut(run: Run) -> bool:
    share = run.setting("rollout.top_p")
    return run.setting("rollout.top_k") is not None or (isinstance(share, (int, float)) and share < 1)


def _replay_note(run: Run, kept: float) -> RunFinding:
    outside = run.series("head/outside_fraction").median
    fell_back = f" {percent(outside)} of the tokens lay outside and kept the whole vocabulary." if outside > 0 else ""
    return RunFinding(
        "note",
        "Cut samples, replayed",
        f"Top-k and top-p left {short_number(kept)} of the probability at a token (median of step means). The learner's log-probs run "
        f"over the same ids, so that ratios compare policies; over the whole vocabulary they would stand at about "
        f"{short_number(kept)}.{fell_back}",
    )


def _not_replayed(run: Run) -> RunFinding:
    ratio = run.series("ratio/mean").median
    seen = f" Mean ratio: {short_number(ratio)} (median over steps)." if ratio == ratio else ""
    return RunFinding(
        "warning",
        "Ratios of a cut and a whole distribution",
        "Tokens are drawn with top-k or top-p, and rollout.head is none: the sampler's log-probs are over the ids that were left, the "
        f"learner's over all, so that each ratio holds what the cut left.{seen}",
        advice=Advice("rollout.head=mask", "Ratio: its mean should stand at 1 on fresh tokens"),
    )
