"""Settings of estimators: written, read back, and refused where they cannot mean anything."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.config.advantages import (
    ESTIMATORS,
    AnyEstimator,
    Estimator,
    Gae,
    Gdpo,
    Grpo,
    Normalise,
    Overlong,
    PassK,
    ReinforcePlusPlus,
    Shaping,
    estimator,
)
from trimtab.config.base import Config
from trimtab.errors import ConfigError, UnknownNameError


class Recipe(Config):
    """Something that holds an estimator."""

    advantage: AnyEstimator


NEEDS: dict[str, dict[str, Any]] = {"gdpo": {"weights": (1.0, 2.0)}}


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_settings_name_the_kind_and_are_read_back(kind: str) -> None:
    value = estimator(kind, baseline="all", **NEEDS.get(kind, {}))
    assert value.settings()["kind"] == kind
    assert type(value).from_settings(value.settings()) == value
    recipe = Recipe(advantage=value)
    assert Recipe.from_settings(recipe.settings()) == recipe
    assert all(field.description for name, field in type(value).model_fields.items() if name != "kind")


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Normalise(mean=None, std=None), "needs a mean or a std, got neither"),
        (lambda: Normalise(mean=None, leave_one_out=True), "with leave_one_out needs a mean"),
        (lambda: Normalise(eps=-1.0), "needs eps"),
        (lambda: Gae(lam=1.5), "needs lam"),
        (lambda: Gae(lam=0.9, length_adaptive=0.1), "with length_adaptive needs no lam, got 0.9"),
        (lambda: Gae(normalise=Normalise(unit="sequence")), "Gae needs normalise.unit token"),
        (lambda: ReinforcePlusPlus(normalise={"unit": "sequence"}), "needs normalise.unit token"),
        (lambda: PassK(k=1), "needs k"),
        (lambda: Gdpo(weights=()), "needs weights"),
        (lambda: Gdpo(), "Gdpo needs weights, got nothing"),
        (lambda: Grpo(std="yes"), "needs std to be true or false"),
        (lambda: Overlong(max_length=4, buffer=5), "needs buffer <= max_length, got 5 > 4"),
        (lambda: Shaping(lower=1.0, upper=0.0), "needs lower <= upper"),
    ],
)
def test_the_impossible_does_not_construct(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'grpo'"):
        estimator("grp0")
    with pytest.raises(UnknownNameError, match="Did you mean 'gamma'"):
        Gae(gama=1.0)
    with pytest.raises(UnknownNameError, match="Did you mean 'kept'"):
        Grpo(baseline="keep")


def test_every_estimator_lets_all_rows_vote_unless_asked() -> None:
    for kind, each in ESTIMATORS.items():
        assert issubclass(each, Estimator)
        assert estimator(kind, **NEEDS.get(kind, {})).baseline == "all"
