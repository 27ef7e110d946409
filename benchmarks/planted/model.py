"""A decoder of two layers in plain torch, small enough to train in seconds and open enough to spoil in every way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from planted.language import BOS, EOS, Language, make_language

ROUTES = 4


def exact(values: Tensor) -> Tensor:
    return values


def as_bf16(values: Tensor) -> Tensor:
    return values.bfloat16().float()


def as_fp16(values: Tensor) -> Tensor:
    return values.half().float()


def as_fp8(values: Tensor) -> Tensor:
    return values.to(torch.float8_e4m3fn).float()


Rounding = Callable[[Tensor], Tensor]


class Cached:
    """Keys and values of each layer, [rows, heads, columns, size]; `window` drops columns that are older."""

    def __init__(self, layers: int, window: int | None = None) -> None:
        self.pairs: list[tuple[Tensor, Tensor] | None] = [None] * layers
        self.window = window

    def update(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        past = self.pairs[layer]
        if past is not None:
            keys, values = torch.cat([past[0], keys], 2), torch.cat([past[1], values], 2)
        if self.window is not None and keys.shape[2] > self.window:
            keys, values = keys[:, :, -self.window :], values[:, :, -self.window :]
        self.pairs[layer] = keys, values
        return keys, values


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.routes = heads, 0
        self.before, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up = nn.Parameter(torch.randn(1, width, 3 * width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(1, 3 * width, width) * (3 * width) ** -0.5)
        self.router: nn.Linear | None = None
        self.router_rounding: Rounding = exact

    def forward(self, x: Tensor, layer: int, cache: Cached | None, rounding: Rounding) -> Tensor:
        rows, columns, width = x.shape
        q, k, v = (
            each.view(rows, columns, self.heads, -1).transpose(1, 2)
            for each in rounding(self.qkv(self.before(x))).chunk(3, -1)
        )
        if cache is not None:
            k, v = cache.update(layer, k, v)
        causal = torch.ones(columns, k.shape[2], dtype=torch.bool).tril(k.shape[2] - columns)
        mixed = nnf.scaled_dot_product_attention(q, k, v, attn_mask=causal)
        x = rounding(x + self.out(rounding(mixed.transpose(1, 2).reshape(rows, columns, width))))
        return rounding(x + self._mlp(self.after(x), rounding))

    def _mlp(self, x: Tensor, rounding: Rounding) -> Tensor:
        if self.router is None:
            return nnf.silu(rounding(x @ self.up[0])) @ self.down[0]
        route = self.router(self.router_rounding(x)).argmax(-1)
        share = self.router(x).softmax(-1).gather(-1, route.unsqueeze(-1)).squeeze(-1)
        found = torch.zeros_like(x)
        for expert in range(self.routes):
            here = route == expert
            found[here] = share[here].unsqueeze(-1) * (nnf.silu(x[here] @ self.up[expert]) @ self.down[expert])
        return found


class TinyLm(nn.Module):
    """Tokens to logits."""

    def __init__(self, vocabulary: int, width: int, positions: int) -> None:
        super().__init__()
        self.embedding, self.place = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        nn.init.normal_(self.embedding.weight, std=0.5)
        nn.init.normal_(self.place.weight, std=0.2)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(2))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.rounding: Rounding = exact

    def forward(self, tokens: Tensor, cache: Cached | None = None, start: int = 0) -> Tensor:
        x = self.rounding(self.embedding(tokens) + self.place(torch.arange(start, start + tokens.shape[1])))
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, cache, self.rounding)
        return self.rounding(self.head(self.rounding(self.norm(x))))


@dataclass(frozen=True, eq=False)
class World:
    """A language and a model that speaks it."""

    language: Language
    model: TinyLm
    seed: int
    versions: list[TinyLm] = field(default_factory=list)
    """What the model becomes as it goes on learning, where that was asked for."""


def train(model: TinyLm, language: Language, rng: np.random.Generator, steps: int, lr: float, rows: int = 24) -> None:
    """Supervised steps on fresh text, its tokens cut with dropout."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        ids = torch.from_numpy(texts(language, rng, rows, 64))
        loss = nnf.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def texts(language: Language, rng: np.random.Generator, rows: int, length: int) -> np.ndarray:
    """Token ids [rows, length]: a start, text, now and then an end and another start."""
    letters = language.write(rng, rows, 2 * length)
    found = np.empty((rows, length), np.int64)
    for row in range(rows):
        tokens = language.cut(letters[row].tolist(), rng, 0.06)
        for place in np.flatnonzero(rng.random(len(tokens)) < 0.006):
            tokens[place] = EOS
        found[row] = [BOS, *tokens][:length]
    return found


def make_world(seed: int, steps: int = 180) -> World:
    """A language and a model trained on it."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    language = make_language(seed)
    model = TinyLm(language.vocabulary, int(rng.choice([48, 64, 80])), 256)
    train(model, language, rng, steps, 4e-3, rows=16)
    return World(language, model.eval(), seed)


def drift(world: World, model: TinyLm, steps: int, lr: float, version: int = 0) -> TinyLm:
    """The model after some steps of learning another way to speak: what a learner's next version is."""
    moved, rng = copy.deepcopy(model), np.random.default_rng((world.seed, 77, version))
    other = np.random.default_rng((world.seed, 78)).permutation(world.language.letters)
    chain = 0.5 * world.language.chain + 0.5 * world.language.chain[other]
    train(moved.train(), Language(chain, world.language.pairs), rng, steps, lr, rows=8)
    return moved.eval()
