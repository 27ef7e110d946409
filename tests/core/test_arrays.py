"""Numpy arrays and lists are taken wherever tensors are; what cannot be one is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import trimtab
from trimtab.core.inputs import takes_arrays
from trimtab.errors import InputError

torch.manual_seed(0)
BEHAVIOR = -2 * torch.rand(3, 4)
PROXIMAL = BEHAVIOR + 0.3 * torch.randn(3, 4)
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]]).bool()
REWARDS, GROUP = torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0, 0, 0])
TOKENS = torch.tensor([[5, 6, 2, 0], [5, 6, 7, 8], [2, 0, 0, 0]])
CURRENT = PROXIMAL + 0.1 * torch.randn(3, 4)

CALLS: dict[str, Callable[..., Any]] = {
    "correct": lambda as_: (
        trimtab.correct("token-tis", behavior=as_(BEHAVIOR), proximal=as_(PROXIMAL), mask=as_(MASK)).weight
    ),
    "correct, packed": lambda as_: (
        trimtab.correct(
            "seq-tis",
            behavior=as_(BEHAVIOR.flatten()),
            proximal=as_(PROXIMAL.flatten()),
            mask=as_(MASK.flatten()),
            cu_seqlens=as_(torch.tensor([0, 4, 8, 12])),
        ).weight
    ),
    "policy_loss": lambda as_: (
        trimtab.policy_loss(
            "clip", current=CURRENT, proximal=as_(PROXIMAL), mask=as_(MASK), advantages=as_(REWARDS - 0.5)
        ).loss
    ),
    "advantages": lambda as_: (
        trimtab.advantages(
            "grpo", rewards=as_(REWARDS), mask=as_(MASK), group=as_(GROUP), kept=as_(MASK), votes=as_(GROUP == 0)
        ).advantages
    ),
    "shaped": lambda as_: (
        trimtab.shaped(
            trimtab.Shaping(no_eos="zero", scale=2.0), as_(REWARDS), mask=as_(MASK), ended=as_(REWARDS)
        ).rewards
    ),
    "normalised": lambda as_: trimtab.normalised(trimtab.Normalise(), as_(BEHAVIOR), mask=as_(MASK)),
    "ended": lambda as_: trimtab.ended(as_(TOKENS), as_(MASK), [2]),
    "staleness": lambda as_: trimtab.staleness(as_(TOKENS), as_(MASK), learner=9).tokens,
    "kl_penalty": lambda as_: trimtab.kl_penalty(0.1, policy=as_(PROXIMAL), reference=as_(BEHAVIOR), mask=as_(MASK)),
    "log_probs_of": lambda as_: trimtab.log_probs_of(torch.eye(4)[None].repeat(3, 1, 1), as_(TOKENS % 4)).log_probs,
    "selected_log_probs": lambda as_: (
        trimtab.selected_log_probs(
            torch.eye(4)[:3], torch.eye(4), as_(torch.tensor([0, 1, 3])), temperature=as_(torch.tensor([1.0, 0.5, 2.0]))
        ).log_probs
    ),
    "Denominator.of": lambda as_: trimtab.Denominator.of([as_(MASK), as_(MASK)], behavior=[as_(BEHAVIOR)] * 2).tokens,
    "Denominator.of one": lambda as_: trimtab.Denominator.of(as_(MASK), group=as_(GROUP)).tokens,
}


def read_only(value: Tensor) -> Any:
    found = value.numpy().copy()
    found.flags.writeable = False
    return found


FORMS: dict[str, Callable[[Tensor], Any]] = {
    "numpy": Tensor.numpy,
    "read-only": read_only,
    "reversed": lambda value: value.numpy()[::-1].copy()[::-1],
    "list": Tensor.tolist,
    "tuple of rows": lambda value: tuple(value.numpy()),
    "list of tensors": lambda value: list(value),
}


LISTS = ("list", "tuple of rows", "list of tensors")
PAIRS = [(name, form) for name in CALLS for form in FORMS if name != "Denominator.of one" or form not in LISTS]
"""There a list is one of micro-batches."""


@pytest.mark.parametrize(("name", "form"), PAIRS)
def test_an_array_or_a_list_gives_what_its_tensor_gives(name: str, form: str) -> None:
    found, wanted = CALLS[name](FORMS[form]), CALLS[name](lambda value: value)
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-7, check_dtype=False)
    assert wanted.ndim == 0 or len(wanted.unique()) > 1


def test_what_is_given_is_copied_and_never_changed() -> None:
    behavior = BEHAVIOR.numpy().copy()
    out = trimtab.correct("token-tis", behavior=behavior, proximal=PROXIMAL, mask=MASK)
    wanted = out.metrics["perplexity/behavior"].clone()
    again = trimtab.correct("token-tis", behavior=behavior, proximal=PROXIMAL, mask=MASK)
    behavior[:] = 7.0  # metrics are worked out later, from what was given
    assert again.metrics["perplexity/behavior"] == wanted


def test_what_carries_the_gradient_needs_to_be_a_tensor() -> None:
    given = {"proximal": PROXIMAL, "mask": MASK, "advantages": REWARDS}
    with pytest.raises(
        InputError, match=r"^current needs a torch tensor, got numpy\.ndarray\. It carries the gradient"
    ):
        trimtab.policy_loss("clip", current=PROXIMAL.numpy(), **given)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"^entropy needs a torch tensor, got list\."):
        trimtab.policy_loss("clip", current=PROXIMAL, entropy=PROXIMAL.tolist(), **given)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"^logits needs a torch tensor, got list\."):
        trimtab.log_probs_of([[0.0, 1.0]], torch.tensor([1]))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "value", [[[-1.0], [-1.0, -2.0]], "log-probs", 3, {"a": 1}, [["a"]], np.array([None]), object()]
)
def test_what_is_no_array_is_refused_in_one_sentence(value: Any) -> None:
    kind = "numpy.ndarray" if isinstance(value, np.ndarray) else type(value).__name__
    with pytest.raises(
        InputError, match=rf"^behavior needs a torch tensor, or numbers in rows of one length, got {kind}\."
    ):
        trimtab.correct("token-tis", behavior=value, proximal=PROXIMAL, mask=MASK)


def test_an_array_goes_to_where_the_first_tensor_lies() -> None:
    @takes_arrays()
    def both(
        one: Tensor, other: Tensor | None = None, scale: float | Tensor = 1.0
    ) -> tuple[Tensor, Tensor | None, Any]:
        return one, other, scale

    one, other, scale = both([1.0], torch.zeros(1, device="meta"), scale=2.0)  # pyright: ignore[reportArgumentType]
    assert one.device == torch.device("meta")
    assert other is not None
    assert scale == 2.0  # a number stays a number where one is welcome
    tensor = torch.zeros(2, requires_grad=True)
    assert both(tensor)[0] is tensor
