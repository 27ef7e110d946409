"""Our weights and masks, read from a framework's settings, against the framework itself."""

from __future__ import annotations

from typing import Any

import peers
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import trimtab
from tests.dialects.scalars import same_scalars
from tests.parity.batches import Batch, batches, few, numbers, same_weights
from tests.parity.tally import count
from trimtab.dialects import read
from trimtab.dialects.frameworks.verl_correction import REJECTIONS
from trimtab.errors import ConfigError

Settings = dict[str, Any]


def corrected(framework: str, settings: Settings, batch: Batch) -> trimtab.Corrected:
    try:
        rule = read(framework, settings).correction
    except ConfigError:
        assume(False)
        raise
    assert rule is not None
    return trimtab.correct(
        rule,
        behavior=batch.behavior,
        proximal=batch.proximal,
        current=batch.current,
        advantages=batch.advantages,
        mask=batch.mask,
    )


def agreed(framework: str, settings: Settings, batch: Batch, theirs: peers.Correction) -> trimtab.Corrected:
    """The framework's weights, mask and scalars are ours."""
    weight, kept, scalars = theirs
    reading, ours = read(framework, settings), corrected(framework, settings, batch)
    if framework not in ZEROING:
        assert torch.equal(ours.kept, kept.bool())
    same_weights(ours.weight, weight, kept.bool())
    count(framework, "correction", "live")
    same_scalars(reading, ours.metrics, scalars, {"mask": batch.mask}, "live")
    return ours


ZEROING = ("trl", "openrlhf", "ms-swift")
"""Frameworks that leave the mask alone and hand back the one they were given."""


@st.composite
def verl(draw: st.DrawFn) -> Settings:
    found: Settings = {}
    if draw(st.booleans()):
        low, high = draw(numbers(0.2, 0.95)), draw(numbers(1.05, 4))
        threshold = draw(st.sampled_from([high, str(high), f"{low}_{high}"]))
        found |= {
            "rollout_is": draw(st.sampled_from(["token", "sequence"])),
            "rollout_is_threshold": threshold,
            "rollout_is_batch_normalize": draw(st.booleans()),
        }
    options = draw(
        st.lists(st.sampled_from([name for name in REJECTIONS if name != "binary_kl"]), max_size=3, unique=True)
    )
    if options:
        low, high = draw(numbers(0.3, 0.98)), draw(numbers(1.02, 4))
        bounds = [
            draw(st.sampled_from([f"{low}_{high}", str(high)])) if name.endswith("k1") else str(draw(numbers(0.01, 2)))
            for name in options
        ]
        found |= {"rollout_rs": ",".join(options), "rollout_rs_threshold": ",".join(bounds)}
    return found


@few
@given(verl(), batches(empty=True))
def test_verl(settings: Settings, batch: Batch) -> None:
    try:
        theirs = peers.verl_correction(batch.proximal, batch.behavior, batch.mask, **settings)
    except ZeroDivisionError:  # verl's effective sample size of weights that are all zero
        return
    agreed("verl", settings, batch, theirs)


@st.composite
def areal(draw: st.DrawFn) -> Settings:
    metric = draw(st.sampled_from(["ratio", "kl_k1", "kl_k2", "kl_k3"]))
    found: Settings = {"level": draw(st.sampled_from(["token", "sequence"])), "metric": metric}
    if found["level"] == "sequence":
        found["agg"] = draw(st.sampled_from(["sum", "mean", "max"]))
    if metric == "ratio":
        found |= {"action": draw(st.sampled_from(["mask", "clamp"])), "upper": draw(numbers(1.02, 4))}
        found["lower"] = draw(st.none() | numbers(0.3, 0.98))
    else:
        found["upper"] = draw(numbers(0.01, 1.5))
    return found


@few
@given(areal(), batches(empty=True))
@pytest.mark.parametrize("packed", [False, True])
def test_areal(packed: bool, settings: Settings, batch: Batch) -> None:
    given = (batch.proximal, batch.behavior, batch.mask)
    rows, width = batch.mask.shape
    if packed:
        bounds = torch.arange(0, rows * width + 1, width, dtype=torch.int32)
        weight, kept, scalars = peers.areal_correction(*(x.flatten() for x in given), cu_seqlens=bounds, **settings)
        weight, kept = weight.reshape(rows, width), kept.reshape(rows, width)
    else:
        weight, kept, scalars = peers.areal_correction(*given, **settings)
    agreed("areal", settings, batch, (weight, kept, scalars))


@st.composite
def skyrl(draw: st.DrawFn) -> Settings:
    found: Settings = {
        "tis_ratio_type": draw(st.sampled_from([None, "token", "sequence"])),
        "token_tis_ratio_clip_high": draw(numbers(1.05, 4)),
        "sequence_tis_ratio_clip_high": draw(numbers(1.05, 6)),
        "sequence_mask_metric": draw(st.sampled_from([None, "product", "geometric"])),
        "geo_mask_low": draw(numbers(0.7, 0.99)),
        "geo_mask_high": draw(numbers(1.01, 1.4)),
        "product_mask_low": draw(numbers(0.1, 0.9)),
        "product_mask_high": draw(numbers(1.1, 5)),
    }
    for name, low, high in (("outlier_token_is_threshold", 0.05, 20.0), ("token_mask_is_threshold", 0.3, 3.0)):
        if draw(st.booleans()):
            found[f"{name}_low"] = draw(numbers(low, 0.95))
        if draw(st.booleans()):
            found[f"{name}_high"] = draw(numbers(1.05, high))
    return found


@few
@given(skyrl(), batches(empty=True))
def test_skyrl(settings: Settings, batch: Batch) -> None:
    theirs = peers.skyrl_correction(batch.proximal, batch.behavior, batch.mask, **settings)
    agreed("skyrl", settings, batch, theirs)


@few
@given(
    st.sampled_from(["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]),
    st.none() | numbers(0.2, 0.95),
    st.none() | numbers(1.05, 5),
    batches(empty=True),
)
def test_trl(mode: str, low: float | None, high: float | None, batch: Batch) -> None:
    assume(not mode.endswith("truncate") or (low, high) != (None, None))
    names = {"mode": mode, "clip_min": low, "clip_max": high}
    settings = {f"vllm_importance_sampling_{name}": value for name, value in names.items()}
    theirs = peers.trl_correction(batch.proximal, batch.behavior, batch.mask, **settings)
    ours = agreed("trl", settings, batch, theirs)
    assert torch.equal(ours.kept, batch.mask)


@few
@given(numbers(0.001, 0.3), batches())
def test_trl_and_swift_sequence_masks(delta: float, batch: Batch) -> None:
    ours = corrected("trl", {"off_policy_mask_threshold": delta}, batch)
    rows = peers.trl_off_policy_mask(batch.current, batch.behavior, batch.advantages, batch.mask, delta)
    same_weights(ours.weight, rows.float().reshape(-1, 1), batch.mask)
    count("trl", "correction", "live")
    swift = corrected("ms-swift", {"off_policy_sequence_mask_delta": delta}, batch)
    rows = peers.swift_off_policy_mask(batch.current, batch.behavior, batch.advantages, batch.mask, delta)
    assert torch.equal(swift.kept, batch.mask & rows.reshape(-1, 1).bool())
    count("ms-swift", "correction", "live")


@st.composite
def openrlhf(draw: st.DrawFn) -> Settings:
    level = draw(st.sampled_from(["off", "token", "seq"]))
    gating = draw(st.sampled_from(["ratio", "tv", *(["binary_kl"] if level == "seq" else [])]))
    clip = level == "token" and gating == "ratio" and draw(st.booleans())
    bounds = (
        [draw(st.sampled_from([0.0, 0.5, 0.9])), draw(numbers(1.02, 4))]
        if gating == "ratio"
        else [0.0, draw(numbers(0.01, 0.4))]
    )
    return {
        "is_correction_level": level,
        "is_correction_mode": "clip" if clip else "mask",
        "is_correction_gating": gating,
        "is_correction_threshold": bounds,
    }


@few
@given(openrlhf(), batches(empty=True))
def test_openrlhf(settings: Settings, batch: Batch) -> None:
    theirs = peers.openrlhf_correction(batch.proximal, batch.behavior, batch.mask, **settings)
    agreed("openrlhf", settings, batch, theirs)


@few
@given(
    st.sampled_from(["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]),
    numbers(1.02, 4),
    batches(empty=True),
)
def test_swift(mode: str, threshold: float, batch: Batch) -> None:
    settings = {"rollout_importance_sampling_mode": mode, "rollout_importance_sampling_threshold": threshold}
    theirs = peers.swift_correction(batch.proximal, batch.behavior, batch.mask, **settings)
    agreed("ms-swift", settings, batch, theirs)
