"""Tensors that do not fit are refused before any arithmetic, with what was needed, what came and what to do."""

from __future__ import annotations

import re

import pytest
import torch

from trimtab.config.presets import preset
from trimtab.core.correct import correct
from trimtab.errors import InputError

TWO = torch.zeros(2, 3)
FLAT = torch.zeros(5)

BAD = {
    "behavior needs the shape of mask (2, 3), got (2, 4).": (
        "token-tis",
        {"behavior": torch.zeros(2, 4), "proximal": TWO, "mask": TWO},
    ),
    "needs proximal log-probs, got None": ("token-tis", {"behavior": TWO, "mask": TWO}),
    "needs current log-probs, got None": ("bypass-token-tis", {"behavior": TWO, "mask": TWO}),
    "needs advantages, got None": ("opsm", {"behavior": TWO, "proximal": TWO, "current": TWO, "mask": TWO}),
    "advantages need shape (2, 3) (per token) or (2,) (per sequence), got (3,)": (
        "opsm",
        {"behavior": TWO, "proximal": TWO, "current": TWO, "mask": TWO, "advantages": torch.zeros(3)},
    ),
    "mask needs two dimensions": ("token-tis", {"behavior": FLAT, "proximal": FLAT, "mask": FLAT}),
    "mask needs one dimension": (
        "token-tis",
        {"behavior": TWO, "proximal": TWO, "mask": TWO, "cu_seqlens": torch.tensor([0, 6])},
    ),
    "got 0 … 4": ("token-tis", {"behavior": FLAT, "proximal": FLAT, "mask": FLAT, "cu_seqlens": torch.tensor([0, 4])}),
    "got 1 … 5": ("token-tis", {"behavior": FLAT, "proximal": FLAT, "mask": FLAT, "cu_seqlens": torch.tensor([1, 5])}),
    "got 4 then 2 at index 2": (
        "token-tis",
        {"behavior": FLAT, "proximal": FLAT, "mask": FLAT, "cu_seqlens": torch.tensor([0, 4, 2, 5])},
    ),
    "cu_seqlens needs one dimension of int32 or int64": (
        "token-tis",
        {"behavior": FLAT, "proximal": FLAT, "mask": FLAT, "cu_seqlens": torch.tensor([0.0, 5.0])},
    ),
    "with a leading 0, got torch.int64 (1, 2)": (
        "token-tis",
        {"behavior": FLAT, "proximal": FLAT, "mask": FLAT, "cu_seqlens": torch.tensor([[0, 5]])},
    ),
    "with a leading 0, got torch.int64 (0,)": (
        "token-tis",
        {"behavior": FLAT, "proximal": FLAT, "mask": FLAT, "cu_seqlens": torch.tensor([], dtype=torch.int64)},
    ),
    "proximal needs floating-point log-probs, got torch.int64": (
        "token-tis",
        {"behavior": TWO, "proximal": TWO.long(), "mask": TWO},
    ),
    "behavior needs to be on cpu, got meta": (
        "token-tis",
        {"behavior": torch.zeros(2, 3, device="meta"), "proximal": TWO, "mask": TWO},
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused_with_a_reason(message: str) -> None:
    name, tensors = BAD[message]
    plain = getattr(correct, "__wrapped__", correct)  # without the run-time shape checker, as users call it
    while hasattr(plain, "__wrapped__"):
        plain = plain.__wrapped__
    with pytest.raises(InputError, match=re.escape(message)):
        plain(preset(name), **tensors)
