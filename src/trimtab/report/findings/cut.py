"""Samples drawn with top-k or top-p: whether the learner's log-probs are of the same distribution, and what that changed."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.report.findings.finding import Advice, RunFinding
from trimtab.report.run import Run
from trimtab.report.text import percent, short_number


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
