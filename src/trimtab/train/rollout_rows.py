"""A trained batch as records: one row per response, and the figures of the loop about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.records.schema import RolloutRow
from trimtab.train.buffer import Buffer, Entry
from trimtab.train.messages import SampledHead, Stepped
from trimtab.train.policy.policy import Policy


def rollout_rows(step: int, entries: Sequence[Entry], policy: Policy, stepped: Stepped) -> list[RolloutRow]:
    """The rows of a step. Responses that came from a checkpoint are decoded again."""
    columns: dict[str, Any] = {
        "current": stepped.current,
        "kept": stepped.kept,
        "weight": stepped.weight,
        "advantage": stepped.advantages,
        "mask": stepped.mask,
    }
    found: list[RolloutRow] = []
    for entry in entries:
        assert entry.group is not None
        texts = entry.texts or policy.texts_of(entry.group)
        for place, (sample, score) in enumerate(zip(entry.group.samples, entry.scores, strict=True)):
            row, length = stepped.places[entry.job.group, place], len(sample.tokens)
            cut = {name: value[row, :length] for name, value in columns.items()}
            found.append(
                RolloutRow(
                    step=step,
                    version=step,
                    group=entry.job.group,
                    sample=place,
                    problem=entry.problem.id,
                    prompt=entry.problem.prompt,
                    response=texts[place],
                    prompt_tokens=entry.job.prompt,
                    tokens=sample.tokens,
                    behavior=sample.behavior,
                    raw=sample.raw,
                    versions=sample.versions,
                    reward=score.reward,
                    parts=dict(score.parts),
                    correct=score.correct,
                    finish=sample.finish,
                    staleness=0 if sample.oldest is None else step - sample.oldest,
                    failed=score.failed,
                    **_head(sample.head),
                    proximal=None if stepped.proximal is None else stepped.proximal[row, :length],
                    **cut,
                )
            )
    return found


def _head(head: SampledHead | None) -> dict[str, Any]:
    if head is None:
        return {}
    return {
        "head_counts": head.counts,
        "head_ids": head.ids,
        "head_log_probs": head.log_probs,
        "head_log_mass": head.log_mass,
    }


def batch_metrics(entries: Sequence[Entry], buffer: Buffer, *, waited: float, seconds: float) -> dict[str, float]:
    """What the loop itself knows of a step that took so many seconds, of which it waited for the batch so many."""
    scores = [score for entry in entries for score in entry.scores]
    samples = [sample for entry in entries if entry.group for sample in entry.group.samples]
    tokens = sum(int(sample.own.sum()) for sample in samples)
    return {
        "time/wait": waited,
        "time/step": seconds,
        "throughput/samples": len(scores) / seconds,
        "throughput/tokens": tokens / seconds,
        "rollout/failed": sum(score.failed is not None for score in scores) / max(len(scores), 1),
        "rollout/broken": sum(sample.finish == "error" for sample in samples) / max(len(samples), 1),
        "staleness/dropped": float(buffer.dropped),
        "staleness/in_flight": float(buffer.in_flight),
        "staleness/in_queue": float(buffer.in_queue),
    }
