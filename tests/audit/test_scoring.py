from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from trimtab.audit import scoring
from trimtab.audit.scoring import ModelScorer
from trimtab.errors import InputError
from trimtab.records.saved import Origin, SavedBatch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    settings = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
        initializer_range=0.5,
        bos_token_id=0,
        eos_token_id=1,
    )
    path = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(settings).save_pretrained(path)
    return path


def saved(lengths: list[int], prompt: int = 2) -> SavedBatch:
    rng = np.random.default_rng(1)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    trained = np.concatenate([np.arange(length) >= prompt for length in lengths])
    return SavedBatch(
        origin=Origin(framework="columns", files=()),
        offsets=offsets,
        trained=trained,
        tokens=rng.integers(0, 32, int(offsets[-1])),
    )


def by_hand(folder: Path, batch: SavedBatch, temperature: float = 1.0) -> np.ndarray:
    """Each sequence on its own, all logits, torch's own log_softmax."""
    model: PreTrainedModel = LlamaForCausalLM.from_pretrained(folder)
    found = []
    for start, end in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        ids = torch.from_numpy(batch.tokens[start:end])[None]
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0] / temperature
        found += [np.nan, *logits.log_softmax(-1)[:-1].gather(1, ids[0, 1:, None])[:, 0].tolist()]
    return np.array(found)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("most_tokens", [7, 8192])
def test_scores_are_those_of_a_full_forward_of_each_sequence(folder: Path, temperature: float, most_tokens: int):
    batch = saved([7, 4, 9, 5])
    found = ModelScorer(folder, most_tokens=most_tokens).log_probs(batch, temperature)
    expected = np.where(batch.trained, by_hand(folder, batch, temperature), np.nan)
    assert found.dtype == np.float32
    assert np.allclose(found, expected, atol=1e-5, equal_nan=True)
    shifted = np.roll(expected, 1)
    both = np.isfinite(found) & np.isfinite(shifted)
    assert np.abs(found[both] - shifted[both]).max() > 0.1  # the values do tell places apart


def test_several_temperatures_of_one_pass_are_those_of_a_pass_each(folder: Path):
    batch, scorer = saved([7, 4, 9]), ModelScorer(folder)
    together = scorer.log_probs_at((0.5, 1.0, 1.5), batch)
    for temperature, found in zip((0.5, 1.0, 1.5), together, strict=True):
        assert np.array_equal(found, ModelScorer(folder).log_probs(batch, temperature), equal_nan=True)
    assert np.abs(np.diff(together, axis=0)[:, batch.trained]).max() > 0.1


def test_a_model_is_loaded_once_whatever_it_scores(folder: Path, monkeypatch: pytest.MonkeyPatch):
    loaded: list[Path] = []
    whole = scoring._load
    monkeypatch.setattr(scoring, "_load", lambda model, dtype: loaded.append(model) or whole(model, dtype))
    scorer = ModelScorer(folder)
    assert not loaded
    for lengths in ([5], [6, 7]):
        scorer.log_probs(saved(lengths))
    assert loaded == [folder]


def test_what_the_model_cannot_read_and_what_is_not_trained_stay_unknown(folder: Path):
    batch = saved([17, 5])
    found = ModelScorer(folder).log_probs(batch)
    assert np.isnan(found[:17]).all()
    assert np.isfinite(found[19:]).all()
    nothing = saved([4], prompt=4)
    assert np.isnan(ModelScorer(folder).log_probs(nothing)).all()


def test_a_pass_that_was_cut_off_goes_on_where_it_stood(folder: Path, tmp_path: Path):
    batch = saved([6, 6, 6, 6])

    class CutOffError(Exception):
        pass

    def cut(done: int, total: int) -> None:
        assert total == 24
        if done >= 12:
            raise CutOffError

    with pytest.raises(CutOffError):
        ModelScorer(folder, cache=tmp_path, most_tokens=6).log_probs(batch, progress=cut)
    told: list[int] = []

    def note(done: int, total: int) -> None:
        told.append(done)

    found = ModelScorer(folder, cache=tmp_path, most_tokens=6).log_probs(batch, progress=note)
    assert told == [12, 18, 24]  # two of four were there
    assert np.allclose(found, ModelScorer(folder).log_probs(batch), atol=1e-6, equal_nan=True)
    told.clear()
    ModelScorer(folder, cache=tmp_path).log_probs(batch, progress=note)
    assert told == [24]
    ModelScorer(folder, cache=tmp_path).log_probs(batch, 0.5)
    assert len(list(tmp_path.glob("*.f32"))) == 2  # another temperature is another set of values


def test_what_cannot_be_scored_is_one_sentence(folder: Path, tmp_path: Path):
    batch = saved([5])
    with pytest.raises(InputError, match="needs a Hugging Face folder"):
        ModelScorer(tmp_path)
    other = SavedBatch(origin=batch.origin, offsets=batch.offsets, trained=batch.trained, tokens=batch.tokens + 40)
    with pytest.raises(InputError, match="vocabulary"):
        ModelScorer(folder).log_probs(other)
    bare = SavedBatch(origin=batch.origin, offsets=batch.offsets, trained=batch.trained)
    with pytest.raises(InputError, match="needs tokens"):
        ModelScorer(folder).log_probs(bare)
    with pytest.raises(InputError, match="temperature above 0"):
        ModelScorer(folder).log_probs(batch, 0.0)
