"""The responses that run: one row each, dense from 0, in host arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trimtab.train.engines.hf.decoder import Positions
from trimtab.train.engines.hf.sampling import TokenHead
from trimtab.train.messages import NOBODY, Floats, Group, Ints, Job, Sample, SampledHead

Finish = Literal["stop", "length", "error"]
NO_IDS = np.zeros(0, np.int32)
NO_NUMBERS = np.zeros(0, np.float32)


@dataclass(eq=False)
class RunningJob:
    """A submitted job and how far it has come."""

    job: Job
    limit: int
    """Tokens a response may have: what the job asks, less what the model has no positions for."""
    kind: int = 0
    """Number of its sampling: rows of one number are drawn together."""
    begun: int = 0
    uniforms: NDArray[np.float64] | None = None
    done: dict[int, Sample] = field(default_factory=dict[int, Sample])

    def randomness(self) -> NDArray[np.float64]:
        """The group's own uniform numbers [samples, max_tokens]: they belong to the sample, not to the row it runs in.

        Drawn token by token, so that a longer limit continues the same responses. Not by torch's generator: on the CPU
        it takes the lower half of a 64-bit seed only.
        """
        if self.uniforms is None:
            own = np.random.Generator(np.random.PCG64(self.job.seed % 2**64))
            self.uniforms = own.random((self.job.max_tokens, self.job.samples)).T
        return self.uniforms

    @property
    def finished(self) -> bool:
        """Whether every sample is done."""
        return len(self.done) == self.job.samples

    @property
    def group(self) -> Group:
        """The finished group."""
        return Group(self.job, tuple(self.done[index] for index in range(self.job.samples)))


class RowReplies:
    """What the environment has still to say in one response."""

    def __init__(self, replies: Sequence[Ints]) -> None:
        self._replies = iter(replies)
        self._left: Iterator[int] = iter(())

    def begin(self) -> bool:
        """Begin the next reply; False where the environment has said all."""
        reply = next(self._replies, None)
        self._left = iter(() if reply is None else reply.tolist())
        return reply is not None

    def next(self) -> int | None:
        """The token it writes next; None while it is the policy's turn."""
        return next(self._left, None)


class Slots:
    """What each running response has drawn so far and draws next. `len` is how many run: rows 0 … len - 1."""

    def __init__(self, rows: int) -> None:
        self.members: list[tuple[RunningJob, int]] = []
        self.current: Positions = np.zeros(rows, np.int64)
        self.position: Positions = np.zeros(rows, np.int64)
        self.made: Positions = np.zeros(rows, np.int64)
        self.limit: Positions = np.zeros(rows, np.int64)
        self.kind: Positions = np.zeros(rows, np.int64)
        self.every: Positions = np.arange(rows)
        self.tokens: Ints = np.zeros((rows, 0), np.int32)
        self.versions: Ints = np.zeros((rows, 0), np.int32)
        self.behavior: Floats = np.zeros((rows, 0), np.float32)
        self.raw: Floats = np.zeros((rows, 0), np.float32)
        self.uniforms: NDArray[np.float64] = np.zeros((rows, 0), np.float64)
        self.heads: list[list[TokenHead | None]] = [[] for _ in range(rows)]
        self.replies: list[RowReplies | None] = [None] * rows
        self.conversing = False
        """Whether a job with replies ever began: most engines see none and need not look for them."""

    def __len__(self) -> int:
        return len(self.members)

    def begin(self, rows: Sequence[int], entry: RunningJob, first: int) -> None:
        """Let samples from `first` on begin in these rows: their next input is the last token of the prompt."""
        if entry.limit > self.tokens.shape[1]:
            self._widen(entry.limit)
        for index, row in enumerate(rows, first):
            if row < len(self.members):
                self.members[row] = (entry, index)
            else:
                self.members.append((entry, index))
            self.heads[row] = []
            self.replies[row] = RowReplies(entry.job.replies) if entry.job.replies else None
        self.conversing = self.conversing or bool(entry.job.replies)
        at = list(rows)
        self.current[at] = entry.job.prompt[-1]
        self.position[at] = len(entry.job.prompt) - 1
        self.made[at], self.limit[at], self.kind[at] = 0, entry.limit, entry.kind
        self.uniforms[at, : entry.limit] = entry.randomness()[first : first + len(at), : entry.limit]

    def drop(self, row: int) -> int | None:
        """Give up a row: the last one moves there, unless it is the last itself. The row that moved, if one did."""
        last = len(self.members) - 1
        member = self.members.pop()
        if row == last:
            return None
        self.members[row] = member
        for values in (self.current, self.position, self.made, self.limit, self.kind):
            values[row] = values[last]
        for table in self._tables():
            table[row] = table[last]
        self.heads[row], self.heads[last] = self.heads[last], []
        self.replies[row] = self.replies[last]
        return last

    def chances(self) -> NDArray[np.float64]:
        """The uniform number that decides each row's next token."""
        return self.uniforms[self.every[: len(self)], self.made[: len(self)]]

    def written(self) -> dict[int, int]:
        """The tokens that the environment writes next, by row; their draws are thrown away."""
        if not self.conversing:
            return {}
        said = {row: each.next() for row, each in enumerate(self.replies[: len(self)]) if each is not None}
        return {row: token for row, token in said.items() if token is not None}

    def go_on(self, row: int) -> bool:
        """Whether the turn that a row has just ended is followed by a reply, which begins."""
        replies = self.replies[row]
        return replies is not None and replies.begin()

    def record(
        self, tokens: Positions, behavior: Floats, raw: Floats, version: int, written: Mapping[int, int] = {}
    ) -> None:
        """Note the tokens drawn, and in place of some of them what was `written`; they are the next inputs."""
        at = (self.every[: len(self)], self.made[: len(self)])
        self.tokens[at], self.behavior[at], self.raw[at] = tokens, behavior, raw
        self.versions[at] = version
        self.current[: len(self)] = tokens
        for row, token in written.items():
            place = (row, self.made[row])
            self.tokens[place] = self.current[row] = token
            self.behavior[place] = self.raw[place] = np.nan
            self.versions[place] = NOBODY
        self.made[: len(self)] += 1
        self.position[: len(self)] += 1

    def record_heads(self, heads: Sequence[TokenHead | None], written: Mapping[int, int] = {}) -> None:
        """Note what is told of the distributions that the tokens just recorded were drawn from; nothing, or one for each row."""
        for row, head in enumerate(heads):
            self.heads[row].append(None if row in written else head)

    def sample(self, row: int, finish: Finish) -> Sample:
        """The response in a row; one that ends in an error is without its last draw."""
        made = self.made[row] - (finish == "error")
        return Sample(
            tokens=self.tokens[row, :made].copy(),
            behavior=self.behavior[row, :made].copy(),
            raw=self.raw[row, :made].copy(),
            versions=self.versions[row, :made].copy(),
            finish=finish,
            head=joined_heads(self.heads[row][:made]),
        )

    def beginning(self, row: int) -> Ints:
        """Every token of a row before its next input."""
        prompt = self.members[row][0].job.prompt
        return np.concatenate([prompt, self.tokens[row, : self.made[row]]])[: self.position[row]].astype(np.int32)

    def _tables(self) -> tuple[NDArray[Any], ...]:
        return self.tokens, self.versions, self.behavior, self.raw, self.uniforms

    def _widen(self, width: int) -> None:
        wider = [np.pad(table, ((0, 0), (0, width - table.shape[1]))) for table in self._tables()]
        self.tokens, self.versions, self.behavior, self.raw, self.uniforms = wider


def joined_heads(heads: Sequence[TokenHead | None]) -> SampledHead | None:
    """The heads of a response's tokens as one; None where nothing was recorded."""
    found = [head for head in heads if head is not None]
    if not found:
        return None
    return SampledHead(
        counts=np.array([0 if head is None else len(head.ids) for head in heads], np.int32),
        ids=np.concatenate([NO_IDS, *(head.ids for head in found)]),
        log_probs=np.concatenate([NO_NUMBERS, *(head.log_probs for head in found)]),
        log_mass=np.array([0.0 if head is None else head.log_mass for head in heads], np.float32),
    )
