"""SkyRL's own functions do what its remarks accuse them of, and do otherwise under settings of which no remark is made."""

from __future__ import annotations

import importlib.metadata
import typing
from collections.abc import Callable
from typing import Any

import peers
import pytest
import torch
import typing_extensions

from trimtab.dialects import read

Settings = dict[str, Any]
RELEASE = importlib.metadata.version("skyrl")
BEHAVIOR = torch.tensor([[-2.0, -1.0, -1.5], [-0.5, -2.5, -1.0]])
RATIOS = torch.tensor([[1.5, 1.5, 1.0], [0.5, 0.9, 3.0]])
"""Of proximal to behavior, and of current to proximal."""
PROXIMAL, MASK, ONES = BEHAVIOR + RATIOS.log(), torch.ones(2, 3).bool(), torch.ones(2, 3)
APART, SIGNS = BEHAVIOR * 3, torch.tensor([[-1.0, 1.0, -1.0], [1.0, -1.0, 1.0]])
"""Log-probs and advantages with covariances from 0.25 to 3.25: five of six are within the bounds of clip_cov, 1 and 5."""


def full(settings: Settings) -> Settings:
    """Names of `trainer.algorithm`, and others, as a file of SkyRL has them."""
    return {name if name.startswith("generator.") else f"trainer.algorithm.{name}": x for name, x in settings.items()}


def nested(settings: Settings) -> Settings:
    found: Settings = {}
    for name, value in settings.items():
        section, _, key = name.rpartition(".")
        (found.setdefault(section, {}) if section else found)[key] = value
    return found


def configuration(settings: Settings) -> Any:
    """As SkyRL's command line is read and validated, with what that changes."""
    with pytest.MonkeyPatch.context() as patch, peers.quiet():
        patch.setattr(typing, "TypedDict", typing_extensions.TypedDict)  # pydantic's rule before Python 3.12
        from skyrl.train.config.config import SkyRLTrainConfig
        from skyrl.train.utils.utils import validate_cfg

        words = [f"{name}={value}" for name, value in full(settings).items()]
        found = SkyRLTrainConfig.from_cli_overrides([*words, "trainer.logger=console"])
        validate_cfg(found)
    return found


def starts(settings: Settings) -> bool:
    try:
        configuration(settings)
    except (ValueError, NotImplementedError):
        return False
    return True


def weighed(settings: Settings) -> list[float]:
    """What multiplies the first row, with what it keeps."""
    rule = vars(configuration(settings).trainer.algorithm.off_policy_correction)
    weight, kept, _ = peers.skyrl_correction(PROXIMAL, BEHAVIOR, MASK, **rule)
    return (kept.float() if weight is None else weight * kept)[0].tolist()


def kept(settings: Settings) -> int:
    rule = vars(configuration(settings).trainer.algorithm.off_policy_correction)
    return int(peers.skyrl_correction(PROXIMAL, BEHAVIOR, MASK, **rule)[1].sum())


def slopes(settings: Settings, times: int = 1) -> torch.Tensor:
    """−∂loss/∂log current in parts of a token's share, of this batch so many times over."""
    rest = nested(settings)
    current, *others = (x.repeat(times, 1) for x in (PROXIMAL + RATIOS.log(), PROXIMAL, ONES, MASK, BEHAVIOR))
    leaf = current.clone().requires_grad_()
    (found,) = torch.autograd.grad(peers.skyrl_loss(rest.pop("policy_loss_type"), leaf, *others, **rest)[0], leaf)
    return -found[:2] * found.numel()


def least(settings: Settings) -> float:
    """The least slope of a token; 0.5 is the least ratio here."""
    return round(float(slopes(settings).min()), 4)


def grows(settings: Settings) -> bool:
    """Whether twice the same rows, a mean over which is the same, have another slope."""
    return not torch.allclose(slopes(settings, times=2), slopes(settings), rtol=1e-4)


def changes(settings: Settings) -> bool:
    """Whether the masks change the loss."""
    bare = {name: value for name, value in settings.items() if not name.startswith("off_policy_correction")}
    return not torch.allclose(slopes(settings), slopes(bare))


def returned(settings: Settings) -> float:
    """What the first token of two sees of the reward of the second, which comes after an observation."""
    mask, rewards = torch.tensor([[True, False, True]]), torch.tensor([[0.0, 0.0, 1.0]])
    name, group = settings["advantage_estimator"], torch.tensor([0])
    return float(peers.skyrl_advantage(name, rewards, mask, values=torch.zeros(1, 3), group=group)[1][0, 0])


def best(settings: Settings) -> bool:
    """Whether the better of two answers with rewards below 0 has a positive advantage."""
    rewards, mask = torch.tensor([[0.0, -1.0], [0.0, -3.0]]), torch.ones(2, 2).bool()
    found = peers.skyrl_advantage(settings["advantage_estimator"], rewards, mask, group=torch.tensor([0, 0]))
    return bool(found[0][0, 0] > 0)


def padding_moves(settings: Settings) -> bool:
    """Whether a critic's value past the end of the answer moves what is returned of a trained token."""
    mask, rewards = torch.tensor([[True, True, False]]), torch.tensor([[0.0, 1.0, 0.0]])
    ends, group = torch.tensor([[[0.0, 0.0, 0.0]], [[0.0, 0.0, 5.0]]]), torch.tensor([0])
    name = settings["advantage_estimator"]
    more = {"lambd": settings.get("lambd", 1.0), "group": group}
    one, two = (peers.skyrl_advantage(name, rewards, mask, values=values, **more)[1] for values in ends)
    return not torch.allclose(one[mask], two[mask])


def depends_on_split(settings: Settings) -> bool:
    """Whether rows of unequal length weigh otherwise in two micro-batches than in one."""
    mask = torch.tensor([[True, True, True], [True, False, False]])
    reduction = settings["loss_reduction"]
    one, two = (peers.skyrl_reduction(ONES, mask, reduction, micro_batch_size=size) for size in (2, 1))
    return not torch.allclose(one, two)


def loss(name: str, **more: Any) -> Settings:
    return {"policy_loss_type": name, "loss_reduction": "token_mean"} | more


def estimator(name: str, **more: Any) -> Settings:
    return {"advantage_estimator": name} | more


OFF = "off_policy_correction"
LEGACY = {"use_tis": True, "tis_imp_ratio_cap": 2.0}
UPPER = {f"{OFF}.token_mask_is_threshold_high": 2.0}
BOTH = UPPER | {f"{OFF}.token_mask_is_threshold_low": 0.6}
VETO = {f"{OFF}.outlier_token_is_threshold_high": 2.0}
TOKEN, SEQUENCE = {f"{OFF}.tis_ratio_type": "token"}, {f"{OFF}.tis_ratio_type": "sequence"}
CLOSED, OPEN = ({"cispo.cispo_eps_clip_low": low} for low in (0.0, 1.0))
CAPTURE = "generator.inference_engine.enable_return_sample_support_set"
REPLAY = {"enable_sample_support_replay": True, CAPTURE: True, "generator.sampling_params.top_k": 20}
Case = tuple[str, Settings, Settings, Callable[[Settings], Any], Any]
CASES: list[Case] = [
    ("flips the sign", {"use_tis": True}, LEGACY, weighed, [-1.0] * 3),
    ("use_tis overrides", LEGACY | SEQUENCE, SEQUENCE, weighed, [1.5, 1.5, 1.0]),
    ("bounds the product", SEQUENCE, TOKEN, weighed, [2.25] * 3),  # their geometric mean is 1.31
    ("with one bound only", UPPER, BOTH, kept, 6),
    ("kl_cov adds a plain sum", loss("kl_cov"), loss("regular"), grows, True),
    ("silently not applied", loss("clip_cov", **VETO), loss("regular", **VETO), changes, False),
    ("silently not applied", loss("kl_cov", **VETO), loss("regular", **VETO), changes, False),
    ("are not supported with", loss("clip_cov", **TOKEN), loss("regular", **TOKEN), starts, False),
    ("the lower bound", loss("cispo", **CLOSED), loss("cispo", **OPEN), least, 1.0),
    ("zeroes the factor", loss("rollout_is"), loss("cispo", **OPEN), least, 0.0),
    ("mean over micro-batches", {"loss_reduction": "token_mean_legacy"}, {"loss_reduction": "token_mean"},
     depends_on_split, True),
    ("starts anew after each observation", estimator("reinforce++"), estimator("grpo"), returned, 0.0),
    ("flips signs where that is negative", estimator("maxrl"), estimator("rloo"), best, False),
    ("reads critic values at masked", estimator("gae", lambd=0.9), estimator("gae"), padding_moves, True),
]  # fmt: skip
SINCE_4: list[Case] = [
    ("stops before it starts: replay", REPLAY | {CAPTURE: False}, REPLAY, starts, False),
    ("stops before it starts: replay", REPLAY | {"generator.sampling_params.top_k": -1}, REPLAY, starts, False),
    ("stops before it starts: replay", REPLAY | {"generator.sampling_params.temperature": 0.0}, REPLAY, starts, False),
    ("stops before it starts: replay", REPLAY | {"generator.sampling_params.repetition_penalty": 1.1}, REPLAY, starts,
     False),
]  # fmt: skip


def accused(settings: Settings, words: str) -> bool:
    found = read("skyrl", {"use_tis": False, **full(settings)}, version=RELEASE).findings
    return any(words in each.text for each in found if each.level != "note")


@pytest.mark.parametrize(
    ("words", "settings", "control", "measured", "value"), CASES + (SINCE_4 if RELEASE != "0.3.0" else [])
)
def test_skyrl_does_so(
    words: str, settings: Settings, control: Settings, measured: Callable[[Settings], Any], value: Any
) -> None:
    assert accused(settings, words)
    assert not accused(control, words)
    assert measured(settings) == pytest.approx(value)
    assert measured(control) != pytest.approx(value)


def test_clip_cov_chooses_tokens_of_whole_advantages_and_none_of_those_that_the_trainer_divides() -> None:
    rest = {"clip_cov": {"clip_ratio": 1.0}}
    assert accused(loss("clip_cov"), "as many times smaller")
    assert not accused(loss("regular"), "as many times smaller")
    found = peers.skyrl_loss("clip_cov", APART, APART, SIGNS, MASK, loss_reduction="token_mean", **rest)[1]
    assert found["clip_ratio"] == 0
    config = peers.skyrl().config.build_nested_dataclass(peers.skyrl().config.AlgorithmConfig, rest)
    whole = peers.skyrl().ppo.compute_policy_loss_clip_cov(APART, APART, SIGNS, config, ONES)[1]
    assert whole["clip_ratio"] == pytest.approx(5 / 6)
