"""What a user is told of responses that went wrong: not of each, as metrics and rollouts hold them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.train.messages import Group, Score

CAUSES = 5
"""How many causes of failed verifiers a session tells; they can be as many as there are responses."""


class SampleFaults:
    """Verifiers that failed, and logits that were not finite."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._is_broken = False

    def notes(self, group: Group, scores: Sequence[Score]) -> Iterator[tuple[str, str]]:
        """Kinds of events and sentences about a group, if there is anything new in it."""
        causes = dict.fromkeys(score.failed for score in scores if score.failed and score.failed not in self._told)
        for cause in list(causes)[: max(0, CAUSES - len(self._told))]:
            self._told.add(cause)
            yield (
                "reward",
                f"A verifier failed: {cause}. Such responses are not trained on; rollout/failed is their share of a step.",
            )
        broken = sum(sample.finish == "error" for sample in group.samples)
        if broken and not self._is_broken:
            self._is_broken = True
            yield (
                "logits",
                f"{broken} of {len(group.samples)} responses to group {group.job.group} met logits that are not finite "
                "and were cut off there; they are not trained on. rollout/broken is their share of a step.",
            )
