"""Logs as the real loggers wrote them, read back exactly; consoles in each framework's own format; and files that mean harm.

data/ was made on a CPU by wandb 0.31.0 (offline), tensorboard 2.21.0 through torch, mlflow 3.17.2 (file store; its meta.yaml and tags left
out), trackio 0.43.0 and the Trainer of transformers 5.8.0, each logging `row(i)` at step i; what the Trainer adds of its own is left in.
"""

from __future__ import annotations

import gzip
import json
import math
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from pprint import pformat
from typing import Any

import numpy as np
import pytest

from trimtab.errors import RecordError
from trimtab.records.logs import Log, read_log_files
from trimtab.records.logs.logged_curves import LONGEST_LINE

DATA = Path(__file__).parent / "data"


def row(i: int) -> dict[str, float]:
    return {
        "train/loss": 0.5 / (i + 1),
        "kl": 1e-3 * 1.1**i,
        "sampling/sampling_logp_difference/mean": 0.01 + i / 1000,
        "entropy": 2.0 - i / 100,
        "grad_norm": math.nan if i == 4 else 1.25,
        "reward": i / 40,
    }


def one(path: Path) -> Log:
    (log,) = read_log_files(path)
    return log


def copy(folder: Path, name: str) -> Path:
    """As its logger would call it: event files are found by their names."""
    path = folder / "events.out.tfevents.1"
    path.write_bytes((DATA / name).read_bytes())
    return path


def same(log: Log, name: str, wanted: Mapping[int, float], *, single: bool = False) -> bool:
    """Bit for bit; TensorBoard keeps single precision."""
    curve = log.curves[name]
    values = np.array(list(wanted.values()), dtype=np.float32 if single else np.float64).astype(np.float64)
    return list(curve.steps) == list(wanted) and np.array_equal(np.array(curve.values), values, equal_nan=True)


def test_a_local_file_of_wandb_is_read_with_its_settings() -> None:
    log = one(DATA / "wandb.bin")
    assert log.kind == "W&B"
    assert same(log, "rollout_corr/k3_kl", {i: 1e-3 * 1.1**i for i in range(40)})
    assert same(log, "rollout_corr/kl", {i: 0.1 * i for i in range(40)})
    assert same(log, "nested/q", {i: i / 7 for i in range(40)})
    assert same(log, "actor/grad_norm", {i: math.nan if i == 4 else 1.25 for i in range(40)})
    assert "text" not in log.curves
    assert log.settings["algorithm"] == {"rollout_correction": {"rollout_is": "token", "rollout_is_threshold": 2.0}}
    assert log.notes == ()


def test_event_files_of_tensorboard_keep_every_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    log = one(copy(tmp_path, "tensorboard.bin"))
    for name in row(0):
        assert same(log, name, {i: row(i)[name] for i in range(40)}, single=True), name


def test_folders_of_mlflow_are_read_with_their_params(tmp_path: Path) -> None:
    with tarfile.open(DATA / "mlflow.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    log = one(tmp_path / "mlruns")
    for name in row(0):
        assert same(log, name, {i: row(i)[name] for i in range(40)}), name
    assert log.settings == {"beta": "0.0", "loss_type": "dapo"}


def test_a_database_of_trackio_is_read_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    path.write_bytes(gzip.decompress((DATA / "trackio.db.gz").read_bytes()))
    log = one(path)
    assert log.name == "run one"
    for name in row(0):
        assert same(log, name, {i: row(i)[name] for i in range(40)}), name
    assert log.settings["loss_type"] == "dapo"
    assert [each.name for each in tmp_path.iterdir()] == ["p.db"]


def test_the_state_of_a_trainer_is_read() -> None:
    log = one(DATA / "trainer-state.json")
    for name in ("kl", "entropy", "reward"):
        assert same(log, name, {i: row(i)[name] for i in range(1, 21)}), name


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        ([{"step": i, "data": row(i)} for i in range(3)], [0, 1, 2]),  # verl's file logger
        ([{"progress/batch": i, **row(i)} for i in range(3)], [0, 1, 2]),  # tinker-cookbook
        ([{"step": i, "time": 1.5, **row(i)} for i in range(3)], [0, 1, 2]),  # prime-rl, and ours
        ([{**row(i), "global_step/max_steps": f"{i}/500", "elapsed": "1m"} for i in range(3)], [0, 1, 2]),  # ms-swift
        ([row(i) for i in range(3)], [1, 2, 3]),
    ],
)
def test_json_lines_of_every_trainer_are_read(tmp_path: Path, lines: list[dict[str, Any]], steps: list[int]) -> None:
    path = tmp_path / "x"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    log = one(path)
    for name in ("kl", "train/loss"):
        assert same(log, name, {step: row(i)[name] for i, step in enumerate(steps)}), name
    assert "elapsed" not in log.curves


def _verl(step: int, data: Mapping[str, Any]) -> str:
    """verl/utils/logger/aggregate_logger.py:26."""
    return " - ".join([f"step:{step}", *(f"{key}:{pformat(value)}" for key, value in data.items())])


def test_the_console_of_verl_is_read_with_the_settings_it_prints(tmp_path: Path) -> None:
    settings = {
        "algorithm": {"rollout_correction": {"rollout_is": "token", "note": "a } in a string " * 8}},
        "n": [1, None],
    }
    before = [f"\x1b[36m(TaskRunner pid=12, ip=1.2.3.4)\x1b[0m {line}" for line in pformat(settings).split("\n")]
    rows = [{"actor/kl": 1e-3 * 1.1**i, "np": np.float64(i / 7), "nan": math.nan, "many": i} for i in range(5)]
    lines = [f"(TaskRunner pid=12) {_verl(i, each)}" for i, each in enumerate(rows)]
    path = tmp_path / "x"
    path.write_text("\n".join(["Ray started {", *before, "Training Progress: 1%", *lines]) + "\n")
    log = one(path)
    assert log.kind == "verl's console"
    assert same(log, "actor/kl", {i: 1e-3 * 1.1**i for i in range(5)})
    assert same(log, "np", {i: i / 7 for i in range(5)})
    assert same(log, "nan", dict.fromkeys(range(5), math.nan))
    assert log.settings == settings


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("[2026-11-19 10:00:00] model.py:918 - step {step}: {row}", "slime or miles's console"),
        ("(RolloutManager pid=7) rollout {step}: {row}", "slime or miles's console"),
        ("INFO ppo_trainer: ✨ Global step {step}: {row}", "OpenRLHF's console"),
        ("Global step {step}: {row}", "OpenRLHF's console"),
    ],
)
def test_consoles_that_print_a_dict_are_read(tmp_path: Path, form: str, kind: str) -> None:
    path = tmp_path / "x"
    other = "critic-step 3: {'train/kl': 9.0}\n"
    path.write_text(
        "start\n"
        + other
        + "".join(
            form.format(step=i, row={"train/kl": np.float64(row(i)["kl"]), "x": math.nan}) + "\n" for i in range(6)
        )
    )
    log = one(path)
    assert log.kind == kind
    assert same(log, "train/kl", {i: row(i)["kl"] for i in range(6)})
    assert same(log, "x", dict.fromkeys(range(6), math.nan))


# --- files that mean harm


def test_a_sparse_gigabyte_is_neither_read_into_memory_nor_taken_for_a_log(tmp_path: Path) -> None:
    empty, begun = tmp_path / "empty", tmp_path / "begun"
    for path, head in ((empty, b""), (begun, (DATA / "wandb.bin").read_bytes())):
        with path.open("wb") as file:
            file.write(head)
            file.truncate(1_000_000_000)
    with pytest.raises(RecordError, match="got neither"):
        read_log_files(empty)
    assert same(one(begun), "rollout_corr/kl", {i: 0.1 * i for i in range(40)})


def test_a_file_of_wandb_that_is_cut_off_anywhere_gives_what_is_whole(tmp_path: Path) -> None:
    data, path = (DATA / "wandb.bin").read_bytes(), tmp_path / "x"
    for length in range(7, len(data), 977):
        path.write_bytes(data[:length])
        try:
            curve = one(path).curves.get("rollout_corr/kl")
        except RecordError:  # nothing of it is whole
            continue
        assert curve is None or list(curve.values) == [0.1 * i for i in range(len(curve.values))]


def test_bytes_that_were_changed_end_no_reader(tmp_path: Path) -> None:
    make = np.random.default_rng(0)
    for name in ("wandb.bin", "trainer-state.json"):
        data, path = np.frombuffer((DATA / name).read_bytes(), dtype=np.uint8), tmp_path / "x"
        for _ in range(60):
            hurt = data.copy()
            hurt[make.integers(7, len(hurt), 20)] = make.integers(0, 256, 20, dtype=np.uint8)
            path.write_bytes(hurt.tobytes())
            try:
                read_log_files(path)
            except RecordError:
                continue


@pytest.mark.parametrize(
    "text",
    [
        "{" * 100_000,
        '{"step": 1, "x": ' + "[" * 100_000 + "]" * 100_000 + "}\n",
        '{"step": 1e400, "x": "no number"}\n',
        "step:1 - \x1b[31m\n",
        "(" * 200 + "pid=" + "(" * 100_000,
        "{'a': " + "(" * 50_000 + "\n}\n",
    ],
)
def test_text_that_is_no_log_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(RecordError, match="got neither"):
        read_log_files(path)


def test_a_line_without_an_end_is_cut_and_numbers_beyond_all_bounds_are_infinite(tmp_path: Path) -> None:
    path = tmp_path / "x"
    rows = [
        '{"step": 1, "x": 1' + "0" * 400 + "}",
        '{"step": 2, "x": "NaN"}',
        "{" + " " * (2 * LONGEST_LINE),
        '{"step": 3, "x": 1e999}',
    ]
    path.write_text("\n".join(rows) + "\n")
    log = one(path)
    assert np.array_equal(np.array(log.curves["x"].values), [math.inf, math.nan, math.inf], equal_nan=True)
    assert log.notes == ("1 damaged line passed over.",)


def test_a_long_log_costs_little_more_than_its_json(tmp_path: Path) -> None:
    """20,000 steps of 60 names, against json.loads of the same lines: 100,000 steps take less than 5 s of a processor so."""
    path = tmp_path / "x"
    names = ", ".join(f'"name/{i}": 0.{i}25' for i in range(60))
    path.write_text("".join(f'{{"step": {step}, {names}}}\n' for step in range(20_000)))
    start = time.process_time()
    for line in path.read_bytes().splitlines():
        json.loads(line)
    plain, start = time.process_time() - start, time.process_time()
    log = one(path)
    assert time.process_time() - start < 6 * plain
    assert sum(len(curve.values) for curve in log.curves.values()) == 1_200_000
