"""Sampling from the small model, token by token with a cache, and scoring what was sampled in one forward."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from planted.language import BOS, EOS, TOOL
from planted.model import Cached, TinyLm, World
from trimtab.records.saved import Origin, SavedBatch

PROMPT, LONGEST = 12, 72


@dataclass(frozen=True)
class Way:
    """How an engine samples and what it reports."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    raw: bool = False
    """Log-probs before temperature and truncation."""
    window: int | None = None
    prompt_by: TinyLm | None = None
    """The model that filled the cache of the prompts, where it is another."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Sampled rows of equal width: prompts and responses, what was reported of each token, and how long each is."""

    ids: Tensor
    reported: Tensor
    lengths: np.ndarray
    trained: np.ndarray


def prompts(world: World, rng: np.random.Generator, groups: int) -> Tensor:
    letters = world.language.write(rng, groups, 2 * PROMPT + 2)
    rows = [[BOS, *world.language.cut(each.tolist())][:PROMPT] for each in letters]
    return torch.tensor(rows)


def distribution(logits: Tensor, way: Way) -> Tensor:
    """Log-probs that tokens are drawn from."""
    found = (logits / way.temperature).log_softmax(-1)
    if way.top_k:
        least = found.topk(way.top_k, -1).values[..., -1:]
        found = found.masked_fill(found < least, -torch.inf).log_softmax(-1)
    if way.top_p < 1.0:
        ordered, places = found.sort(-1, descending=True)
        before = ordered.exp().cumsum(-1) - ordered.exp()
        outside = torch.zeros_like(found, dtype=torch.bool).scatter(-1, places, before >= way.top_p)
        found = found.masked_fill(outside, -torch.inf).log_softmax(-1)
    return found


@torch.no_grad()
def sample(world: World, model: TinyLm, begin: Tensor, way: Way, rng: np.random.Generator, *, turns: int = 1) -> Rows:
    """Responses to these prompts; with several turns a tool answers in between, in a few tokens that are not trained."""
    draw = torch.Generator().manual_seed(int(rng.integers(1 << 62)))
    cache, rows = Cached(2, way.window), len(begin)
    ids, reported = begin, torch.zeros(begin.shape)
    trained = np.zeros(begin.shape, bool)
    logits = (way.prompt_by or model)(begin[:, :-1], cache) if PROMPT > 1 else None
    logits = model(begin[:, -1:], cache, start=PROMPT - 1)[:, -1]
    width = LONGEST // turns
    for turn in range(turns):
        for _ in range(width):
            found = distribution(logits, way)
            token = torch.multinomial(found.exp(), 1, generator=draw)
            told = logits.log_softmax(-1) if way.raw else found
            ids, reported = torch.cat([ids, token], 1), torch.cat([reported, told.gather(-1, token)], 1)
            logits = model(token, cache, start=ids.shape[1] - 1)[:, -1]
        trained = np.concatenate([trained, np.ones((rows, width), bool)], 1)
        if turn + 1 < turns:
            said = tool_text(world, rng, rows)
            logits = model(said, cache, start=ids.shape[1])[:, -1]
            ids, reported = torch.cat([ids, said], 1), torch.cat([reported, torch.zeros(said.shape)], 1)
            trained = np.concatenate([trained, np.zeros(said.shape, bool)], 1)
    lengths = np.full(rows, ids.shape[1]) if turns > 1 else PROMPT + rng.integers(16, LONGEST + 1, rows)
    return Rows(ids, reported, cut_at_end(ids, lengths), trained)


def tool_text(world: World, rng: np.random.Generator, rows: int) -> Tensor:
    letters = world.language.write(rng, rows, 16)
    return torch.tensor([[TOOL, *world.language.cut(each.tolist())][:7] for each in letters])


def cut_at_end(ids: Tensor, lengths: np.ndarray) -> np.ndarray:
    """Rows end after their first end token."""
    ended = (ids[:, PROMPT:] == EOS).numpy()
    first = np.where(ended.any(1), ended.argmax(1) + PROMPT + 1, ids.shape[1])
    return np.minimum(lengths, first)


@torch.no_grad()
def score(model: TinyLm, ids: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-prob of each token given those before it, 0 for the first."""
    logits = model(ids[:, :-1])
    found = (logits / temperature).log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return torch.cat([torch.zeros(len(ids), 1), found], 1)


def saved(rows: Rows, scored: Tensor, groups: int, **more: object) -> SavedBatch:
    """A saved batch of rows sampled and scored, in the layout of records; all tokens fresh unless told."""
    present = np.arange(rows.ids.shape[1])[None] < rows.lengths[:, None]
    trained = rows.trained & present
    behavior, proximal = (
        np.where(trained, each.numpy(), np.nan).astype(np.float32)[present] for each in (rows.reported, scored)
    )
    count = len(rows.lengths)
    rng = np.random.default_rng(count)
    batch = SavedBatch(
        origin=Origin(framework="columns", files=()),
        offsets=np.concatenate([[0], np.cumsum(rows.lengths)]).astype(np.int64),
        trained=trained[present],
        tokens=rows.ids.numpy()[present],
        behavior=behavior,
        proximal=proximal,
        advantage=np.repeat(rng.normal(size=count), rows.lengths).astype(np.float32),
        versions=np.where(trained, 5, -1)[present],
        group=np.repeat(np.arange(groups), count // groups),
        reward=(rng.random(count) < 0.5).astype(np.float64),
        step=np.full(count, 5),
        learner_version=np.full(count, 5),
        source=tuple(f"engine-{place % 4}" for place in range(count)),
    )
    return replace(batch, **more)  # pyright: ignore[reportArgumentType]


def join(parts: list[SavedBatch]) -> SavedBatch:
    """Several batches as one."""
    from trimtab.records.saved import PER_SEQUENCE, PER_TOKEN

    columns: dict[str, object] = {}
    for name in (*PER_TOKEN, *PER_SEQUENCE):
        values = [getattr(part, name) for part in parts]
        if values[0] is None:
            continue
        columns[name] = sum(values, ()) if isinstance(values[0], tuple) else np.concatenate(values)
    if parts[0].group is not None:
        most = [0, *np.cumsum([int(part.group.max()) + 1 for part in parts])]  # pyright: ignore[reportOptionalMemberAccess]
        columns["group"] = np.concatenate([part.group + first for part, first in zip(parts, most, strict=False)])  # pyright: ignore[reportOperatorIssue]
    lengths = np.concatenate([part.lengths for part in parts])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return SavedBatch(origin=parts[0].origin, offsets=offsets, **columns)  # pyright: ignore[reportArgumentType]
