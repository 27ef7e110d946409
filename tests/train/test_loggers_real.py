"""The real services, without a network: run where their extras are installed (`pip install -e '.[wandb,mlflow]'`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.train.test_loggers import twice


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own libraries
def test_mlflow_has_every_value_of_a_run_and_of_its_continuation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow: Any = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.chdir(tmp_path)  # its database is made here
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    twice("mlflow", tmp_path / "run-1")
    client = mlflow.MlflowClient()
    (experiment,) = (each for each in client.search_experiments() if each.name == "p")
    (run,) = client.search_runs([experiment.experiment_id])
    found = [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, "kl_token")]
    assert found == [(0, 0.5), (2, 0.5)]
    assert run.data.params == {"lr": "0.1", "model.path": "None"}
    assert (run.info.run_name, run.info.status) == ("run-1", "FAILED")


def test_wandb_keeps_both_parts_of_a_run_under_one_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    for name, value in {"MODE": "offline", "SILENT": "true", "ERROR_REPORTING": "false"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    twice("wandb", tmp_path / "run-1")
    parts = sorted((tmp_path / "run-1" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len({part.name for part in parts}) == 1
    assert all(b"kl@token" in part.read_bytes() for part in parts)
