"""Every cause that the audit knows, planted for real, with its name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from planted.language import PAD, SPECIAL
from planted.model import ROUTES, TinyLm, World, as_bf16, as_fp8, as_fp16, drift, train
from planted.sampling import PROMPT, Rows, Way, join, prompts, sample, saved, score
from trimtab.records.saved import SavedBatch
from trimtab.train.engines.hf.quantize import round_weight

GROUPS, EACH = 20, 8


@dataclass(frozen=True, eq=False)
class Planted:
    """A batch with its fault, and a second scoring by the trainer where the fault needs one to be seen."""

    batch: SavedBatch
    second: np.ndarray | None = None


@dataclass(frozen=True)
class Plant:
    """A planted fault: the cause that should be found first, None where none should, and how the batch is made."""

    cause: str | None
    make: Callable[[World, np.random.Generator], Planted]


def _rows(world: World, rng: np.random.Generator, model: TinyLm | None = None, way: Way | None = None, groups: int = GROUPS,
          turns: int = 1) -> Rows:  # fmt: skip
    begin = prompts(world, rng, groups).repeat_interleave(EACH, 0)
    return sample(world, model or world.model, begin, way or Way(), rng, turns=turns)


def _batch(
    world: World, rows: Rows, model: TinyLm | None = None, temperature: float = 1.0, **more: object
) -> SavedBatch:
    return saved(rows, score(model or world.model, rows.ids, temperature), len(rows.lengths) // EACH, **more)


def _clean(world: World, rng: np.random.Generator) -> Planted:
    """Sampler and trainer are one: the same numbers, bit for bit."""
    batch = _batch(world, _rows(world, rng))
    return Planted(replace(batch, behavior=batch.proximal))


def _float32(world: World, rng: np.random.Generator) -> Planted:
    """Token by token with a cache against one forward, both in float32."""
    return Planted(_batch(world, _rows(world, rng)))


def _shift(world: World, rng: np.random.Generator) -> Planted:
    """The sampler's log-probs stand one token late, or early."""
    batch = _batch(world, _rows(world, rng))
    by = int(rng.choice([-1, 1]))
    late = np.full_like(batch.behavior, np.nan)
    for low, high in zip(batch.offsets, batch.offsets[1:], strict=False):
        own = np.flatnonzero(batch.trained[low:high]) + low
        late[own] = np.roll(batch.behavior[own], by)
    return Planted(replace(batch, behavior=late))


def _filled(world: World, rng: np.random.Generator) -> Planted:
    """Some log-probs were not returned and stand as 0, or as another number."""
    batch = _batch(world, _rows(world, rng))
    lost = batch.trained & (rng.random(len(batch.trained)) < rng.uniform(0.01, 0.2))
    return Planted(
        replace(batch, behavior=np.where(lost, rng.choice([0.0, -30.0, -1.0]), batch.behavior).astype(np.float32))
    )


def _prompt_trained(world: World, rng: np.random.Generator) -> Planted:
    """The mask begins with the prompt, for which the engine has no log-probs: 0."""
    rows = _rows(world, rng)
    first = int(rng.integers(1, PROMPT - 3))
    trained = rows.trained.copy()
    trained[:, first:] = True
    return Planted(_batch(world, replace(rows, trained=trained)))


def _padding_trained(world: World, rng: np.random.Generator) -> Planted:
    """Rows padded to one width, and the mask does not end where they do."""
    rows = _rows(world, rng)
    after = torch.from_numpy(np.arange(rows.ids.shape[1])[None] >= rows.lengths[:, None])
    ids = rows.ids.masked_fill(after, PAD)
    reported = rows.reported.masked_fill(after, 0.0)
    whole = np.full(len(rows.lengths), rows.ids.shape[1])
    return Planted(_batch(world, replace(rows, ids=ids, reported=reported, lengths=whole)))


def _temperature(world: World, rng: np.random.Generator) -> Planted:
    """The sampler divides its logits by a temperature and says so in its log-probs; the trainer does not."""
    way = Way(temperature=float(rng.choice([0.6, 0.7, 0.8, 0.9, 1.2])))
    return Planted(_batch(world, _rows(world, rng, way=way)))


def _raw(world: World, rng: np.random.Generator) -> Planted:
    """The trainer divides by the temperature; the sampler samples with it and reports log-probs without."""
    way = Way(temperature=float(rng.choice([0.6, 0.7, 0.8, 0.9, 1.2])), raw=True)
    return Planted(_batch(world, _rows(world, rng, way=way), temperature=way.temperature))


def _top_p(world: World, rng: np.random.Generator) -> Planted:
    """Tokens are drawn from the nucleus, with log-probs over it; the trainer's are over the whole vocabulary."""
    return Planted(_batch(world, _rows(world, rng, way=Way(top_p=float(rng.choice([0.8, 0.9, 0.95]))))))


def _top_k(world: World, rng: np.random.Generator) -> Planted:
    """The same with the k likeliest tokens."""
    return Planted(_batch(world, _rows(world, rng, way=Way(top_k=int(rng.choice([3, 5, 10]))))))


def _recut(world: World, ids: list[int], fixed: int) -> tuple[list[int], list[list[int]]]:
    """Text of these tokens cut anew, and of each new token the old ones it shares letters with; the first ones stay."""
    owners: list[int] = []
    tokens, found = list(ids[:fixed]), [[place] for place in range(fixed)]
    letters: list[int] = []

    def flush() -> None:
        done = 0
        for token in world.language.cut(letters):
            spelt = len(world.language.spell(token))
            tokens.append(token)
            found.append(sorted(set(owners[done : done + spelt])))
            done += spelt
        letters.clear()
        owners.clear()

    for place in range(fixed, len(ids)):
        if ids[place] < SPECIAL:
            flush()
            tokens.append(ids[place])
            found.append([place])
            continue
        spelt = world.language.spell(ids[place])
        letters.extend(spelt)
        owners.extend([place] * len(spelt))
    flush()
    return tokens, found


def _retokenised(world: World, rng: np.random.Generator, *, by_text: bool) -> Planted:
    """Responses decoded to text and cut into tokens again; log-probs follow by index, or by the text they cover."""
    rows = _rows(world, rng, turns=2 if by_text else 1)
    made: list[tuple[list[int], list[float], list[bool]]] = []
    for ids, told, length, own in zip(
        rows.ids.tolist(), rows.reported.tolist(), rows.lengths, rows.trained, strict=True
    ):
        tokens, parts = _recut(world, ids[:length], PROMPT)
        if by_text:
            reported = [sum(told[place] for place in each if own[place]) for each in parts]
            trained = [bool(own[each].any()) for each in parts]
        else:
            reported = told[: len(tokens)]
            trained = [bool(place >= PROMPT) for place in range(len(tokens))]
        made.append((tokens, reported, trained))
    width = max(len(each[0]) for each in made)
    ids = torch.tensor([each[0] + [PAD] * (width - len(each[0])) for each in made])
    reported = torch.tensor([each[1] + [0.0] * (width - len(each[1])) for each in made])
    trained = np.array([each[2] + [False] * (width - len(each[2])) for each in made])
    lengths = np.array([len(each[0]) for each in made])
    return Planted(_batch(world, Rows(ids, reported, lengths, trained)))


def _versions(world: World, count: int) -> list[TinyLm]:
    """The learner's weights, version by version."""
    if not world.versions:
        lr = float(np.random.default_rng(world.seed).choice([5e-4, 1e-3]))
        world.versions.append(world.model)
        for version in range(1, count):
            world.versions.append(drift(world, world.versions[-1], 4, lr, version))
    return world.versions[:count]


def _stale(world: World, rng: np.random.Generator) -> Planted:
    """Samples of the last few versions, each marked with its own, scored by the newest."""
    weights = _versions(world, 6)
    parts: list[SavedBatch] = []
    for age in range(5):
        batch = _batch(world, _rows(world, rng, weights[5 - age], groups=GROUPS // 5), weights[5])
        parts.append(replace(batch, versions=np.where(batch.trained, 5 - age, -1)))
    return Planted(join(parts))


def _lying(world: World, rng: np.random.Generator) -> Planted:
    """Weights never reach the sampler; versions say that they do. Six steps, saved together."""
    weights = _versions(world, 6)
    parts: list[SavedBatch] = []
    for step, learner in enumerate(weights):
        batch = _batch(world, _rows(world, rng, weights[0], groups=4), learner)
        number = np.full(len(batch), step)
        parts.append(replace(batch, versions=np.where(batch.trained, step, -1), step=number, learner_version=number))
    return Planted(join(parts))


def _prompt_cache(world: World, rng: np.random.Generator) -> Planted:
    """The engine keeps the keys and values of prompts over a change of weights; half of the prompts it had seen before."""
    weights = _versions(world, 6)
    parts = [
        _batch(world, _rows(world, rng, weights[5], Way(prompt_by=by), groups=GROUPS // 2), weights[5])
        for by in (weights[0], None)
    ]
    return Planted(join(parts))


def _evicted(world: World, rng: np.random.Generator) -> Planted:
    """The engine's cache forgets what is further back than its window."""
    return Planted(_batch(world, _rows(world, rng, way=Way(window=PROMPT + int(rng.integers(4, 16))))))


def _engine(world: World, rng: np.random.Generator) -> Planted:
    """One engine of four has other weights than it says."""
    behind = drift(world, world.model, 12, 1e-3, 1)
    bad = int(rng.integers(4))
    parts: list[SavedBatch] = []
    for place in range(4):
        batch = _batch(world, _rows(world, rng, behind if place == bad else world.model, groups=GROUPS // 4))
        parts.append(replace(batch, source=(f"engine-{place}",) * len(batch)))
    return Planted(join(parts))


def rounded_model(model: TinyLm, precision: str) -> TinyLm:
    """The model as an engine of lower precision runs it: weights and activations rounded for 16 bits, weights for fewer."""
    found = copy.deepcopy(model)
    if precision in ("bf16", "fp16"):
        found.rounding = as_bf16 if precision == "bf16" else as_fp16
        for weight in found.parameters():
            weight.data = found.rounding(weight.data)
        return found
    for block in found.blocks:
        for linear in (block.qkv, block.out):
            linear.weight.data = round_weight(linear.weight.data, precision)
        for weight in (block.up, block.down):
            weight.data = torch.stack([round_weight(each, precision, out=1) for each in weight.data])
    return found


def _precision(world: World, rng: np.random.Generator, *, precision: str) -> Planted:
    return Planted(_batch(world, _rows(world, rng, rounded_model(world.model, precision))))


def _trainer(world: World, rng: np.random.Generator) -> Planted:
    """The trainer computes in bfloat16 and rounds otherwise each time, as kernels do that sum in another order."""
    rows = _rows(world, rng)
    noisy = [rounded_model(turned(world.model, int(rng.integers(1 << 31))), "bf16") for _ in range(2)]
    first, again = (_batch(world, rows, model) for model in noisy)
    return Planted(first, second=again.proximal)


def turned(model: TinyLm, seed: int) -> TinyLm:
    """The same function with its hidden state in another basis: only roundings change."""
    found = copy.deepcopy(model)
    width = found.embedding.weight.shape[1]
    turn, _ = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(seed)))
    for table in (found.embedding.weight, found.place.weight):
        table.data = table.data @ turn
    for block in found.blocks:
        block.qkv.weight.data = block.qkv.weight.data * block.before.weight.data @ turn
        block.out.weight.data = turn.T @ block.out.weight.data
        block.up.data = turn.T @ (block.after.weight.data.unsqueeze(1) * block.up.data)
        block.down.data = block.down.data @ turn
        block.before.weight.data.fill_(1.0)
        block.after.weight.data.fill_(1.0)
    found.head.weight.data = found.head.weight.data * found.norm.weight.data @ turn
    found.norm.weight.data.fill_(1.0)
    return found


def mixture_of(world: World) -> TinyLm:
    """The model with each MLP as several experts that have learned apart for a while."""
    found = copy.deepcopy(world.model)
    draw = torch.Generator().manual_seed(world.seed)
    for block in found.blocks:
        block.routes, width = ROUTES, block.up.shape[1]
        block.router = torch.nn.Linear(width, ROUTES, bias=False)
        block.router.weight.data = torch.randn(ROUTES, width, generator=draw) * width**-0.5
        for name in ("up", "down"):
            weight = getattr(block, name).data.repeat(ROUTES, 1, 1)
            noise = torch.randn(weight.shape, generator=draw) * weight.std()
            setattr(block, name, torch.nn.Parameter(weight + 0.3 * noise))
    train(found.train(), world.language, np.random.default_rng(world.seed), 30, 2e-3, rows=12)
    return found.eval()


def _routing(world: World, rng: np.random.Generator) -> Planted:
    """A mixture of experts whose sampler has its router in fp8, too: now and then another expert answers."""
    mixture = mixture_of(world)
    sampler = copy.deepcopy(mixture)
    for block in sampler.blocks:
        block.router_rounding = as_fp8
    return Planted(_batch(world, _rows(world, rng, sampler), mixture))


PLANTS: dict[str, Plant] = {
    "nothing": Plant(None, _clean),
    "float32 noise": Plant(None, _float32),
    "shift by one": Plant("shift", _shift),
    "text cut again, by index": Plant("retokenised", lambda w, r: _retokenised(w, r, by_text=False)),
    "text cut again, by text": Plant("retokenised", lambda w, r: _retokenised(w, r, by_text=True)),
    "prompt in the mask": Plant("mask", _prompt_trained),
    "padding in the mask": Plant("mask", _padding_trained),
    "missing filled": Plant("missing", _filled),
    "top-p": Plant("truncation", _top_p),
    "top-k": Plant("truncation", _top_k),
    "temperature": Plant("temperature", _temperature),
    "raw log-probs": Plant("raw", _raw),
    "one engine of four": Plant("source", _engine),
    "stale weights": Plant("stale", _stale),
    "versions that lie": Plant("versions", _lying),
    "prompt cache kept": Plant("cache", _prompt_cache),
    "cache that forgets": Plant("cache", _evicted),
    "trainer noise": Plant("trainer", _trainer),
    "routing": Plant("tails", _routing),
    "bf16 sampler": Plant("precision", lambda w, r: _precision(w, r, precision="bf16")),
    "fp16 sampler": Plant("precision", lambda w, r: _precision(w, r, precision="fp16")),
    "fp8 sampler": Plant("precision", lambda w, r: _precision(w, r, precision="fp8")),
    "int8 sampler": Plant("precision", lambda w, r: _precision(w, r, precision="int8")),
    "int4 sampler": Plant("precision", lambda w, r: _precision(w, r, precision="int4")),
}


def plant(name: str, world: World) -> Planted:
    """A batch with this cause, from the world's own seed."""
    rng = np.random.default_rng((world.seed, *name.encode()))
    return PLANTS[name].make(world, rng)
