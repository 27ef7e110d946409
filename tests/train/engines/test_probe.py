"""The probe: what given weights make of a text, and what an engine that lacks some of them is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.train.engines.models import model_of
from trimtab.errors import RunError
from trimtab.train.engines.probe import Probe, Skeleton

FAMILIES = ["qwen2", "qwen2 tied", "llama biased", "qwen3", "gpt2"]


def probe_of(model: Any, **changes: Any) -> Probe:
    return Probe(Skeleton(model.config), **{"vocabulary": 20, "longest": 96, "tolerance": 1e-4, **changes})


def plain(model: Any, tokens: Any) -> Any:
    ids = torch.from_numpy(tokens).long().unsqueeze(0)
    with torch.no_grad():
        log_probs = model(ids).logits[0, :-1].log_softmax(-1)
    return log_probs.gather(-1, ids[0, 1:].unsqueeze(-1)).squeeze(-1).numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_skeleton_with_lent_weights_is_the_model(family: str) -> None:
    """It keeps none of them: with the weights of another model it is that one."""
    skeleton = Skeleton(model_of(family).config)
    tokens = np.arange(12, dtype=np.int32)
    for seed in (0, 1):
        model = model_of(family, seed)
        found = skeleton.log_probs(dict(model.named_parameters()), tokens)
        np.testing.assert_allclose(found, plain(model, tokens), rtol=0, atol=1e-6)
    assert np.abs(plain(model_of(family), tokens) - found).mean() > 0.1


def test_a_skeleton_holds_no_weights() -> None:
    skeleton = Skeleton(model_of("qwen2").config)
    assert all(parameter.is_meta for parameter in skeleton._model.parameters())
    assert not any(buffer.is_meta for buffer in skeleton._model.buffers())
    assert not torch.nn.Linear(2, 2).weight.is_meta  # modules made afterwards have memory again


def test_tied_weights_are_given_under_both_names_and_untied_ones_as_they_are() -> None:
    tied, untied = model_of("qwen2 tied"), model_of("qwen2")
    whole = Skeleton(tied.config).with_ties(dict(tied.named_parameters()))
    assert whole["lm_head.weight"] is whole["model.embed_tokens.weight"]
    assert whole.keys() == tied.state_dict().keys()
    given = dict(untied.named_parameters())
    assert Skeleton(untied.config).with_ties(given) == given


def test_an_answer_within_the_tolerance_is_measured() -> None:
    model = model_of("qwen2")
    expected = probe_of(model).expect(dict(model.named_parameters()), 3)
    # Every log-prob higher by 5e-5: the mean difference is 5e-5.
    assert expected.compare(expected.log_probs + np.float32(5e-5), "X") == pytest.approx(5e-5, rel=0.05)


def test_an_engine_with_the_weights_of_before_is_told_so() -> None:
    model, other = model_of("qwen2"), model_of("qwen2", 1)
    probe = probe_of(model)
    before = probe.expect(dict(model.named_parameters()), 0)
    now = probe.expect(dict(other.named_parameters()), 1)
    with pytest.raises(
        RunError, match=r"^X needs the weights of version 1 .* it kept the weights of the version before"
    ):
        now.compare(before.log_probs, "X")


@pytest.mark.parametrize("answer", [1.0, float("nan")])
def test_an_engine_that_answers_something_else_is_told_what_may_be_missing(answer: float) -> None:
    model = model_of("qwen2")
    expected = probe_of(model).expect(dict(model.named_parameters()), 0)
    with pytest.raises(RunError, match="a tied head, a packed copy, an adapter"):
        expected.compare(expected.log_probs + np.float32(answer), "X")


def test_the_text_fits_the_engine() -> None:
    assert len(probe_of(model_of("qwen2"), longest=8).tokens) == 7
