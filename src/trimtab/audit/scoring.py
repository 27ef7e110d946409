"""The side that a file lacks, worked out from a model: log-probs of saved tokens, some at a time, kept on disk as they come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from trimtab.errors import InputError
from trimtab.log_probs.public import log_probs_of, selected_log_probs
from trimtab.records.files import make_folder
from trimtab.records.saved import SavedBatch

TOKENS_AT_ONCE = 8192
"""Tokens of one forward pass, padding included; a longer sequence is a pass of its own."""
MODEL_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class ModelScorer:
    """The model in a Hugging Face folder: loaded when the first tokens are to be scored, and once.

    `dtype` is what the model computes in; float32 says least about the trainer's own rounding. With `cache`, a folder, what was
    worked out there before is taken from it, and a pass that was cut off goes on.
    """

    def __init__(
        self, folder: Path, *, dtype: str = "float32", cache: Path | None = None, most_tokens: int = TOKENS_AT_ONCE
    ) -> None:
        if dtype not in MODEL_DTYPES or most_tokens < 1:
            raise InputError(
                f"Scoring needs most_tokens of at least 1 and a dtype of {', '.join(MODEL_DTYPES)}, got {most_tokens} and {dtype!r}."
            )
        self.folder, self.dtype, self.cache, self.most_tokens = folder, dtype, cache, most_tokens
        self.settings = _settings(folder)
        self._loaded: tuple[PreTrainedModel, bool] | None = None

    def log_probs(
        self, batch: SavedBatch, temperature: float = 1.0, progress: Callable[[int, int], None] | None = None
    ) -> NDArray[np.float32]:
        """Log-probs of the tokens: index t is token t's, NaN where none was worked out.

        Worked out from the first trained token of a sequence on; a sequence without any, or longer than the model can read, has none.
        `progress` is told tokens done and tokens in all.
        """
        return self.log_probs_at((temperature,), batch, progress)[0]

    def log_probs_at(
        self,
        temperatures: Sequence[float],
        batch: SavedBatch,
        progress: Callable[[int, int], None] | None = None,
    ) -> NDArray[np.float32]:
        """The same at several temperatures, `[temperatures, tokens]`, for one forward pass of each sequence."""
        if batch.tokens is None:
            raise InputError(
                "Scoring needs tokens, got a batch without. A file of text alone cannot be scored token by token."
            )
        if not all(temperature > 0 for temperature in temperatures):
            raise InputError(f"Scoring needs a temperature above 0, got {', '.join(map(str, temperatures))}.")
        wanted = _sequences_to_score(batch, self.settings)
        key = _key(batch, self.folder, temperatures, self.dtype)
        scores = _Scores(batch, len(temperatures), self.cache, key)
        left = [index for index in wanted if not scores.done[index]]
        total = int(batch.lengths[wanted].sum())
        count = total - int(batch.lengths[left].sum())
        if progress is not None:
            progress(count, total)
        for few in _batches(left, batch.lengths, self.most_tokens):
            policy, plain = self._model(int(batch.tokens.max(initial=0)))
            scores.put(few, _score(policy, plain, batch, few, temperatures))
            count += int(batch.lengths[few].sum())
            if progress is not None:
                progress(count, total)
        return np.array(scores.values)

    def release(self) -> None:
        """Let go of the weights; they are loaded again when they are needed."""
        self._loaded = None

    def _model(self, largest: int) -> tuple[PreTrainedModel, bool]:
        """The model, and whether its head is plain; refused where it has not heard of the largest token."""
        if self._loaded is None:
            policy = _load(self.folder, MODEL_DTYPES[self.dtype])
            self._loaded = policy, _has_plain_head(policy)
        size = int(cast("Any", self._loaded[0].get_input_embeddings()).num_embeddings)
        if largest >= size:
            raise InputError(
                f"--model needs the vocabulary of the tokens, got {size} entries and token {largest}. Is it another model?"
            )
        return self._loaded


class _Scores:
    """Values per temperature and token, and what is done per sequence: two files that are written in place, or arrays."""

    def __init__(self, batch: SavedBatch, many: int, folder: Path | None, key: str) -> None:
        self._offsets = batch.offsets
        tokens, sequences = int(batch.offsets[-1]), len(batch)
        if folder is None or not tokens:
            self.values: NDArray[np.float32] = np.full((many, tokens), np.nan, np.float32)
            self.done: NDArray[np.bool_] = np.zeros(sequences, bool)
            return
        make_folder(folder)
        names = folder / f"scores-{key}.f32", folder / f"scores-{key}.done"
        if not all(name.exists() for name in names) or names[0].stat().st_size != 4 * many * tokens:
            np.full(many * tokens, np.nan, np.float32).tofile(names[0])
            np.zeros(sequences, bool).tofile(names[1])
        self.values = np.memmap(names[0], np.float32, "r+", shape=(many, tokens))
        self.done = np.memmap(names[1], np.bool_, "r+")

    def put(self, sequences: list[int], found: list[NDArray[np.float32]]) -> None:
        """Keep the values of some sequences; they count as done when those are on disk."""
        for index, values in zip(sequences, found, strict=True):
            self.values[:, self._offsets[index] : self._offsets[index + 1]] = values
        if isinstance(self.values, np.memmap):
            self.values.flush()
        self.done[sequences] = True
        if isinstance(self.done, np.memmap):
            self.done.flush()


def _key(batch: SavedBatch, model: Path, temperatures: Sequence[float], dtype: str) -> str:
    """What the values depend on: the tokens, the weights by the names, sizes and times of their files, temperatures and type."""
    files = sorted(path for path in model.iterdir() if path.suffix in (".safetensors", ".json"))
    weights = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    key = json.dumps([str(model.resolve()), weights, list(temperatures), dtype])
    digest = hashlib.blake2b(key.encode(), digest_size=16)
    for column in (batch.offsets, batch.tokens, batch.trained):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def _settings(model: Path) -> Any:
    if not (model / "config.json").is_file():
        raise InputError(f"--model needs a Hugging Face folder with a config.json, got {model}.")
    try:
        return AutoConfig.from_pretrained(model, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # a damaged file fails in as many ways as there are readers of it
        raise InputError(
            f"--model needs a config.json that transformers can read, got {model}: {_line(error)}."
        ) from error


def _load(model: Path, dtype: torch.dtype) -> PreTrainedModel:
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # the bar of the whole pass is enough
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            model,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    except Exception as error:
        raise InputError(f"--model needs a causal LM with safetensors, got {model}: {_line(error)}.") from error
    finally:
        if shown:
            logging.enable_progress_bar()
    policy, found = loaded
    if found["missing_keys"]:
        raise InputError(f"--model needs all its weights, got {model} without {sorted(found['missing_keys'])[0]}.")
    return cast("PreTrainedModel", policy.eval())


def _sequences_to_score(batch: SavedBatch, settings: Any) -> list[int]:
    """Sequences with a trained token that the model can read, longest first: what does not fit into memory fails at once."""
    most = getattr(settings, "max_position_embeddings", None) or np.inf
    has = np.add.reduceat(np.append(batch.trained, False), batch.offsets[:-1]) > 0 if len(batch) else np.empty(0, bool)
    fits = has & (batch.lengths > 1) & (batch.lengths <= most)
    order = np.argsort(-batch.lengths, kind="stable")
    return order[fits[order]].tolist()


def _batches(sequences: list[int], lengths: NDArray[np.int64], most: int) -> Iterator[list[int]]:
    """Sequences of like length, at most `most` tokens with their padding."""
    few: list[int] = []
    for index in sequences:
        if few and (len(few) + 1) * int(lengths[few[0]]) > most:
            yield few
            few = []
        few.append(index)
    if few:
        yield few


@torch.no_grad()
def _score(
    policy: PreTrainedModel, plain: bool, batch: SavedBatch, few: list[int], temperatures: Sequence[float]
) -> list[NDArray[np.float32]]:
    """Log-probs of some sequences, `[temperatures, tokens]` of each. Padding is behind, where a causal model does not see it."""
    tokens = cast("NDArray[np.int64]", batch.tokens)
    spans = [slice(int(batch.offsets[index]), int(batch.offsets[index + 1])) for index in few]
    width = max(span.stop - span.start for span in spans)
    ids = torch.zeros(len(few), width, dtype=torch.long)
    targets = torch.full((len(few), width), -1)
    for row, span in enumerate(spans):
        ids[row, : span.stop - span.start] = torch.from_numpy(tokens[span])
        first = max(1, int(batch.trained[span].argmax()))
        targets[row, first - 1 : span.stop - span.start - 1] = ids[row, first : span.stop - span.start]
    found = torch.stack(_head(policy, plain, ids, targets, temperatures))
    values = torch.where(targets >= 0, found.float(), torch.nan).numpy()
    blank = np.full((len(temperatures), 1), np.nan, np.float32)
    return [np.concatenate([blank, values[:, row, : span.stop - span.start - 1]], 1) for row, span in enumerate(spans)]


def _head(
    policy: PreTrainedModel, plain: bool, ids: Tensor, targets: Tensor, temperatures: Sequence[float]
) -> list[Tensor]:
    if not plain:
        logits = cast("Tensor", policy(input_ids=ids, use_cache=False).logits)
        return [log_probs_of(logits, targets, temperature=each).log_probs for each in temperatures]
    hidden = cast("Tensor", policy.base_model(input_ids=ids, use_cache=False).last_hidden_state)
    head = cast("Any", policy.get_output_embeddings())
    return [
        selected_log_probs(hidden, head.weight, targets, temperature=each, bias=head.bias).log_probs
        for each in temperatures
    ]


@torch.no_grad()
def _has_plain_head(policy: PreTrainedModel) -> bool:
    """Whether the logits are the last hidden states times the head's weight: then they need never be held whole."""
    head = policy.get_output_embeddings()
    if not isinstance(head, nn.Linear) or policy.base_model is policy:
        return False
    ids = torch.arange(4).remainder(head.out_features).unsqueeze(0)
    logits = cast("Tensor", policy(input_ids=ids, use_cache=False).logits)
    hidden = cast("Tensor", policy.base_model(input_ids=ids, use_cache=False).last_hidden_state)
    return torch.allclose(linear(hidden, head.weight, head.bias).float(), logits.float(), rtol=1e-4, atol=1e-5)


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
