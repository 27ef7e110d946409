"""Continuous batched sampling from a transformers causal LM.

queue of jobs ──prompt prefilled once──► rows ──forward──► logits ──inverse CDF──► a token each ──stop, limit──► samples ─► groups
                                          ▲                                            │
                                          └── freed rows begin the next sample ◄───────┘

Where a job has replies, a stop token ends a turn: the reply's tokens take the place of drawn ones, and the row goes on after them.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from trimtab.config.training import KvCache, Precision
from trimtab.errors import ConfigError, InputError
from trimtab.train.devices import to_device, to_host
from trimtab.train.engines.hf import llama
from trimtab.train.engines.hf.decoder import Decoder, HfDecoder, Positions, same
from trimtab.train.engines.hf.quantize import STATES, Quantizer
from trimtab.train.engines.hf.sampling import Draw, TokenHead, draw
from trimtab.train.engines.hf.slots import RunningJob, Slots
from trimtab.train.messages import Flags, Group, HeadKind, Job, Sampling
from trimtab.train.policy.model import DTYPES
from trimtab.train.policy.policy import positions_of

DrawKind = tuple[Sampling, HeadKind, int]
"""What rows that are drawn together have in common."""
InFlight = Literal["finish", "keep_cache", "recompute"]


class HfEngine:
    """Samples jobs with a copy of a model, in its own precision.

    The same weights, seed and job give the same tokens whatever else runs, up to the rounding of matrix products of
    another size; the same jobs submitted in the same order give the same bits.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        stop: Sequence[int],
        precision: Precision = "fp32",
        kv_cache: KvCache = "auto",
        in_flight: InFlight = "keep_cache",
        slots: int = 128,
        version: int = 0,
    ) -> None:
        if slots < 1:
            raise ConfigError(f"HfEngine needs at least one slot, got {slots}.")
        self.version = version
        self.in_flight: InFlight = in_flight
        self.limit = positions_of(model.config)
        self.quantizer = Quantizer(model, precision)
        self.vocabulary = self.quantizer.vocabulary
        self.stops = _stops(stop, self.vocabulary)
        self.decoder = decoder_of(model, self.quantizer, slots)
        self.decoder.keep_states(STATES[kv_cache])
        self.rows = slots
        self.slots = Slots(slots)
        self.holes: list[int] = []
        self.queue: deque[RunningJob] = deque()
        self.kinds: dict[DrawKind, int] = {}
        self.entries: dict[int, RunningJob] = {}
        self.held: tuple[RunningJob, Any] | None = None
        self.waiting: tuple[dict[str, Tensor], int] | None = None

    @property
    def pending(self) -> int:
        """Groups submitted and not yet finished."""
        return len(self.entries)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs; all are checked before the first is taken."""
        seen = set(self.entries)
        for job in jobs:
            self._check(job)
            if job.group in seen:
                raise InputError(f"Job needs a group number of its own, got {job.group} twice.")
            seen.add(job.group)
        for job in jobs:
            room = job.max_tokens if self.limit is None else min(job.max_tokens, self.limit - len(job.prompt))
            entry = RunningJob(job, room, self.kinds.setdefault(drawn_as(job), len(self.kinds)))
            self.queue.append(entry)
            self.entries[job.group] = entry

    @torch.inference_mode()
    def step(self) -> list[Group]:
        """Fill free slots, sample one token in every slot; the groups that finished now."""
        if self.waiting is None:
            self._fill()
        self._close()
        running, slots = len(self.slots), self.slots
        if not running:
            return []
        logits = self.decoder.forward(slots.current[:running], slots.position[:running])
        drawn = self._draw(logits, to_device(torch.from_numpy(slots.chances()), logits.device))
        tokens, behavior, raw, sound = (each.numpy() for each in to_host(_columns(drawn)))
        written = slots.written()
        slots.record(tokens, behavior, raw, self.version, written)
        slots.record_heads(drawn.heads, written)
        stopped = self._last_turns(tokens, written)
        ended = stopped | (slots.made[:running] >= slots.limit[:running]) | ~sound
        finished: list[Group] = []
        self.holes = np.flatnonzero(ended).tolist()
        for row in self.holes:
            finish = "error" if not sound[row] else "stop" if stopped[row] else "length"
            entry, index = slots.members[row]
            entry.done[index] = slots.sample(row, finish)
            if finish == "error":
                self.decoder.clear(row)
            if entry.finished:
                finished.append(self.entries.pop(entry.job.group).group)
        self._switch()
        return finished

    @torch.inference_mode()
    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take over weights by state-dict name; they are copied.

        Responses half done: finish goes on with the weights in use until none runs, and begins none meanwhile;
        keep_cache goes on with the keys and values made so far; recompute has the new weights make them again.
        """
        self._close()
        if self.in_flight == "finish" and len(self.slots):
            self.quantizer.check(weights)
            self.waiting = ({name: weight.detach().clone() for name, weight in weights.items()}, version)
            return
        self._take(weights, version)
        if self.in_flight == "recompute":
            rows = range(len(self.slots))
            for row, prefix in zip(
                rows, self.decoder.prefill([self.slots.beginning(row) for row in rows]), strict=True
            ):
                self.decoder.place(prefix, [row])

    @torch.inference_mode()
    def abandon(self) -> None:
        """Forget everything submitted; weights that waited for it are taken over."""
        self.queue.clear()
        self.entries.clear()
        self.slots.members.clear()
        self.holes.clear()
        self.held = None
        self._switch()

    def _draw(self, logits: Tensor, chances: Tensor) -> Draw:
        """A token for every row, by the sampling of its own job."""
        kinds = self.slots.kind[: len(self.slots)]
        if (kinds == kinds[0]).all():
            return draw(logits, chances, *drawn_as(self.slots.members[0][0].job))
        places = [np.flatnonzero(kinds == kind) for kind in np.unique(kinds)]
        there = [to_device(torch.from_numpy(rows), logits.device) for rows in places]
        jobs = [self.slots.members[rows[0]][0].job for rows in places]
        parts = [draw(logits[rows], chances[rows], *drawn_as(job)) for rows, job in zip(there, jobs, strict=True)]
        places_of = np.concatenate(places).argsort()
        order = to_device(torch.from_numpy(places_of), logits.device)
        tokens, behavior, raw, sound = (torch.cat(column)[order] for column in zip(*map(_columns, parts), strict=True))
        heads: tuple[TokenHead | None, ...] = ()
        if any(part.heads for part in parts):
            told = [
                head for part, rows in zip(parts, places, strict=True) for head in part.heads or (None,) * len(rows)
            ]
            heads = tuple(told[place] for place in places_of)
        return Draw(tokens, behavior, raw, sound, heads)

    def _last_turns(self, tokens: Positions, written: Mapping[int, int]) -> Flags:
        """The rows whose last turn a stop token has just ended. Where a reply is left, it begins instead."""
        stopped = self.stops[tokens]
        if not self.slots.conversing:
            return stopped
        stopped[list(written)] = False  # nobody drew it
        for row in np.flatnonzero(stopped).tolist():
            stopped[row] = not self.slots.go_on(row)
        return stopped

    def _fill(self) -> None:
        """Begin the next samples in free rows. Each prompt is prefilled once, also where its samples begin apart."""
        free = self.holes + list(range(len(self.slots), self.rows))
        starts: list[tuple[RunningJob, list[int]]] = []
        while free and self.queue:
            entry = self.queue[0]
            count = min(len(free), entry.job.samples - entry.begun)
            starts.append((entry, free[:count]))
            free = free[count:]
            entry.begun += count
            if entry.begun == entry.job.samples:
                self.queue.popleft()
        if not starts:
            return
        first, held = starts[0][0], self.held
        ready = [held[1]] if held is not None and held[0] is first else []
        made = self.decoder.prefill([entry.job.prompt[:-1] for entry, _ in starts[len(ready) :]])
        for (entry, rows), prefix in zip(starts, ready + made, strict=True):
            self.decoder.place(prefix, rows)
            self.slots.begin(rows, entry, entry.begun - len(rows))
            self.held = (entry, prefix) if entry.begun < entry.job.samples else None
        self.holes = self.holes[sum(len(rows) for _, rows in starts) :]

    def _close(self) -> None:
        """Move the last rows into free ones between them; from behind, so that what moves is never free itself."""
        for row in reversed(self.holes):
            moved = self.slots.drop(row)
            if moved is not None:
                self.decoder.move(moved, row)
        self.holes.clear()

    def _switch(self) -> None:
        """Take over weights that wait, once nothing runs."""
        if self.waiting is not None and len(self.holes) == len(self.slots):
            (weights, version), self.waiting = self.waiting, None
            self._take(weights, version)

    def _take(self, weights: Mapping[str, Tensor], version: int) -> None:
        self.decoder.load(self.quantizer(weights))
        self.version = version
        self.held = None  # its first token would carry a version that did not make it

    def _check(self, job: Job) -> None:
        name = f"Job {job.group}"
        if not len(job.prompt):
            raise InputError(f"{name} needs a prompt of at least one token, got none. Begin it with a start token.")
        if job.samples < 1 or job.max_tokens < 1:
            raise InputError(
                f"{name} needs at least one sample of at least one token, got samples {job.samples}, max_tokens {job.max_tokens}."
            )
        if self.limit is not None and len(job.prompt) >= self.limit:
            raise InputError(
                f"{name} needs a prompt shorter than the model's {self.limit} positions, got {len(job.prompt)} tokens. "
                "Shorten it, or leave it out."
            )
        if any(not len(reply) for reply in job.replies):
            raise InputError(f"{name} needs replies of at least one token each, got an empty one.")
        given = np.concatenate([job.prompt, *job.replies])
        least, most = int(given.min()), int(given.max())
        if least < 0 or most >= self.vocabulary:
            raise InputError(
                f"{name} needs token ids from 0 to {self.vocabulary - 1}, got {least} to {most}. "
                "Use the tokenizer that belongs to the model."
            )


def hf_engine(
    architecture: PretrainedConfig, dtype: str, *, device: torch.device | None = None, **settings: Any
) -> HfEngine:
    """An engine of this architecture on a device, whose weights are still to be loaded."""
    model = AutoModelForCausalLM.from_config(architecture, dtype=DTYPES[dtype], trust_remote_code=False)
    return HfEngine(model if device is None else model.to(device), **settings)


def drawn_as(job: Job) -> DrawKind:
    """How the tokens of a job are drawn, and what is recorded of it."""
    return job.sampling, job.head, job.head_size


def _columns(drawn: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return drawn.tokens, drawn.behavior, drawn.raw, drawn.sound


@torch.inference_mode()
def decoder_of(model: PreTrainedModel, quantizer: Quantizer, rows: int) -> Decoder:
    """What runs a copy of the model, its weights as `quantizer` leaves them; the fast path only where it gives the same."""
    own = copy.deepcopy(model).requires_grad_(False).eval()
    for parameter in own.parameters():  # buffers stay: rounded rotary frequencies would lose their place far out
        parameter.data = parameter.data.to(quantizer.dtype)
    general = HfDecoder(own, rows)
    general.load(quantizer(dict(model.state_dict())))
    if not llama.fits(own):
        return general
    fast = llama.LlamaDecoder(own, max(rows, 2))
    return fast if same(fast, HfDecoder(own, 2), min(16, quantizer.vocabulary)) else general


def _stops(stop: Sequence[int], size: int) -> Any:
    result = np.zeros(size, np.bool_)
    wrong = [token for token in stop if not 0 <= token < size]
    if wrong:
        raise InputError(
            f"stop needs token ids from 0 to {size - 1}, got {wrong}. Use the tokenizer that belongs to the model."
        )
    result[list(stop)] = True
    return result
