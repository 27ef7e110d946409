"""What is said of a log: the order of what moved, what is certain and what is not, and how it reaches the terminal and the page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.cli import main
from trimtab.report.log import ReadLog, read_logs
from trimtab.report.log_findings import certain
from trimtab.report.log_page import log_lines

STEPS = 60
NOISE = np.random.default_rng(7)
Values = Callable[[int], float]


def steady(level: float) -> Values:
    return lambda _: level * (1 + 0.05 * float(NOISE.standard_normal()))


def breaks(level: float, after: float, at: int) -> Values:
    """Steady at one level, and from a step on at another."""
    low, high = steady(level), steady(after)
    return lambda step: high(step) if step >= at else low(step)


def write(path: Path, curves: dict[str, Values]) -> Path:
    path.write_text(
        "".join(
            json.dumps({"step": i, **{name: curve(i) for name, curve in curves.items()}}) + "\n"
            for i in range(1, STEPS + 1)
        )
    )
    return path


def one(path: Path, **more: Any) -> ReadLog:
    (read,) = read_logs(path, **more)
    return read


def verl(tmp_path: Path, **curves: Values) -> ReadLog:
    """A run of verl's names, steady but for what is given, `/` written `__`."""
    usual = {
        "rollout_corr/k3_kl": steady(2e-3),
        "rollout_corr/kl": steady(2e-3),
        "actor/pg_clipfrac": steady(0.01),
        "actor/grad_norm": steady(0.5),
        "actor/entropy": steady(1.0),
        "critic/rewards/mean": lambda step: min(0.6, 0.1 + step / 50) + 0.003 * float(NOISE.standard_normal()),
    }
    return one(write(tmp_path / "x.jsonl", usual | {name.replace("__", "/"): curve for name, curve in curves.items()}))


K3, GRAD, ENTROPY, REWARD = "rollout_corr__k3_kl", "actor__grad_norm", "actor__entropy", "critic__rewards__mean"


def falling(at: int) -> Values:
    return lambda step: (min(0.6, 0.1 + step / 50) if step < at else 0.1) + 0.003 * float(NOISE.standard_normal())


@pytest.mark.parametrize(
    ("planted", "order"),
    [
        (
            {K3: breaks(2e-3, 0.2, 20), GRAD: breaks(0.5, 20, 30), REWARD: falling(45)},
            ["drift/k3", "train/grad_norm", "rollout/reward"],
        ),
        (
            {GRAD: breaks(0.5, 20, 18), K3: breaks(2e-3, 0.2, 28), REWARD: falling(45)},
            ["train/grad_norm", "drift/k3", "rollout/reward"],
        ),
        ({ENTROPY: breaks(1.0, 0.1, 22), REWARD: falling(40)}, ["policy/entropy", "rollout/reward"]),
        ({REWARD: falling(30), K3: breaks(2e-3, 0.2, 45)}, ["rollout/reward", "drift/k3"]),
        ({K3: breaks(2e-3, 0.2, 33)}, ["drift/k3"]),
        ({}, []),
    ],
)
def test_the_order_that_was_planted_is_said(tmp_path: Path, planted: dict[str, Values], order: list[str]) -> None:
    moves = verl(tmp_path, **planted).moves
    assert [move.metric for move in moves] == order
    starts = {
        "drift/k3": (20, 28, 45, 33),
        "train/grad_norm": (30, 18),
        "policy/entropy": (22,),
        "rollout/reward": (45, 40, 30),
    }
    assert all(any(start <= move.step <= start + 4 for start in starts[move.metric]) for move in moves)


def kinds(read: ReadLog) -> list[str]:
    return [each.kind for each in certain(read)]


def test_a_healthy_run_is_accused_of_nothing(tmp_path: Path) -> None:
    assert kinds(verl(tmp_path)) == []


@pytest.mark.parametrize(
    ("curves", "kind", "control"),
    [
        (
            {K3: steady(0.1), "rollout_corr__kl": steady(0.1), "actor__pg_clipfrac": lambda _: 0.0},
            "idle clip",
            {"actor__pg_clipfrac": lambda step: 0.001 if step == 9 else 0.0},
        ),
        ({"rollout_corr__kl": steady(-1e-3)}, "negative KL", {"rollout_corr__kl": lambda step: 1e-3 * (-1) ** step}),
        ({K3: steady(0.2), "rollout_corr__kl": steady(0.01)}, "few tokens", {"rollout_corr__kl": steady(0.19)}),
        (
            {
                "rollout_corr__rollout_is_eff_sample_size": steady(0.98),
                "rollout_corr__rollout_is_ratio_fraction_high": steady(0.1),
            },
            "truncated sample size",
            {"rollout_corr__rollout_is_ratio_fraction_high": steady(0.001)},
        ),
    ],
)
def test_what_is_certain_is_said_and_its_control_is_not(
    tmp_path: Path, curves: dict[str, Values], kind: str, control: dict[str, Values]
) -> None:
    assert kinds(verl(tmp_path, **curves)) == [kind]
    assert kind not in kinds(verl(tmp_path, **(curves | control)))


def test_a_mean_ratio_other_than_one_is_said_and_one_near_it_is_not(tmp_path: Path) -> None:
    names = {"is_ratio_std": steady(0.1), "tis_token_clip_high_ratio": steady(0.1)}
    for mean, wanted in ((0.9, ["mean ratio"]), (1.0, [])):
        level = lambda _, mean=mean: mean + 0.003 * float(NOISE.standard_normal())  # noqa: E731
        k3 = {"compute/k3": steady(0.01), "is_ratio_mean": level}
        read = one(write(tmp_path / "x", names | k3), mapped={"drift/k3": "compute/k3"})
        assert read.framework == "skyrl"
        assert kinds(read) == wanted


def test_a_batch_that_was_used_twice_is_said_with_its_step(tmp_path: Path) -> None:
    rows = [
        {"step": i, "actor/grad_norm": 0.5 + i / 7, "actor/entropy": 1 + i / 9, "rollout_corr/k3_kl": 1e-3 + i / 1e5}
        for i in range(40)
    ]
    rows[20] |= {name: value for name, value in rows[19].items() if name != "step"}
    path = tmp_path / "x"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found,) = certain(one(path))
    assert (found.kind, "at step 20:" in found.sentence) == ("stuck batch", True)


def test_a_log_that_never_looks_at_the_sampler_gets_the_key_and_is_no_fault(tmp_path: Path) -> None:
    (found,) = certain(one(write(tmp_path / "x", {"actor/pg_clipfrac": steady(0.1), "actor/entropy": steady(1.0)})))
    assert found.kind == "not measured" and not found.is_fault  # noqa: PT018
    assert "calculate_log_probs=True" in found.sentence


def test_the_clip_of_a_trainer_without_another_pass_sees_the_sampler(tmp_path: Path) -> None:
    names = {
        "kl": steady(0.2),
        "ratio": steady(1.0),
        "sample/staleness_mean": steady(3.0),
        "clip_ratio/region_mean": lambda _: 0.0,
    }
    assert "idle clip" not in kinds(one(write(tmp_path / "x", names)))


def test_a_sign_is_read_in_ours_and_a_complement_too(tmp_path: Path) -> None:
    names = {
        "ppo_actor/update/behave_approx_kl/avg": lambda _: -0.25,
        "ppo_actor/update/rs_filtered_fraction": lambda _: 0.25,
    }
    read = one(write(tmp_path / "x", names), framework="areal")
    assert set(read.series("drift/kl").values.tolist()) == {0.25}
    assert set(read.series("kept_fraction").values.tolist()) == {0.75}
    assert certain(read) == []


def test_settings_in_a_log_are_explained() -> None:
    path = Path(__file__).parents[1] / "records" / "logs" / "data" / "wandb.bin"
    _, lines = log_lines(one(path))
    assert "weight: min(r, 2)" in dict(lines)["settings"]


def call(*arguments: object) -> int:
    """The command's exit code."""
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


HOSTILE = "rollout_corr/k3_kl\x1b[2J<script>alert(1)</script>"


def test_the_terminal_gets_few_lines_and_the_page_no_markup_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curves = {
        HOSTILE: steady(0.1),
        "rollout_corr/k3_kl": breaks(2e-3, 0.2, 20),
        "actor/pg_clipfrac": lambda _: 0.0,
        "rollout_corr/kl": steady(-0.1),
    }
    path, page = write(tmp_path / "<b>x", curves), tmp_path / "page.html"
    assert call("report", path, "--map", f"policy/k1={HOSTILE}", "-o", page, "--fail-on", "certain") == 1
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) <= 25
    assert "\x1b" not in printed
    assert "step 21" in printed or "step 20" in printed
    text = page.read_text(encoding="utf-8")
    assert "<script>alert" not in text and "<b>x" not in text  # noqa: PT018
    assert call("report", path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["framework"] == "verl"


def test_several_logs_share_a_page_and_a_run_of_ours_is_not_mixed_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [write(tmp_path / name, {"rollout_corr/k3_kl": steady(level)}) for name, level in (("a", 0.1), ("b", 0.01))]
    page = tmp_path / "page.html"
    assert call("report", *paths, "-o", page) == 0
    assert page.read_text(encoding="utf-8").count("<article") == 2
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    assert call("report", paths[0], tmp_path / "run") == 2
    assert call("report", paths[0], "--map", "drift/k9=x") == 2
    assert call("report", paths[0], "--from", "verk") == 2
    assert "Did you mean 'verl'" in capsys.readouterr().err


def test_values_that_are_no_numbers_break_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(
        "".join(
            json.dumps({"step": i, "rollout_corr/k3_kl": math.nan, "actor/grad_norm": math.inf}) + "\n"
            for i in range(40)
        )
    )
    read = one(path)
    assert read.moves == []
    assert log_lines(read)[0]
