import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from trimtab.errors import ConfigError, RecordError, UnknownNameError
from trimtab.installed import install_command
from trimtab.train.loggers import Loggers, open_loggers


def silent(message: str) -> None:
    raise AssertionError(message)


def scalars(folder: Path) -> list[tuple[str, int, float]]:
    """Every scalar in the event files, in the order written."""
    return [
        (value.tag, event.step, value.tensor.float_val[0])
        for path in sorted(folder.iterdir())
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
    ]


# tensorboard, the real one


def test_tensorboard_has_every_scalar(tmp_path: Path) -> None:
    loggers = open_loggers(["tensorboard"], folder=tmp_path, project="p", warn=silent)
    loggers.log(3, {"loss/policy": 0.5, "kl": 0.25})
    assert scalars(tmp_path / "tensorboard") == [("loss/policy", 3, 0.5), ("kl", 3, 0.25)]  # before it is closed
    loggers.log(4, {"kl": float("nan")})
    loggers.close()
    tag, step, value = scalars(tmp_path / "tensorboard")[-1]
    assert (tag, step, value == value) == ("kl", 4, False)


def test_tensorboard_hides_what_a_resumed_run_makes_anew(tmp_path: Path) -> None:
    for first in (0, 2):
        loggers = open_loggers(["tensorboard"], folder=tmp_path, project="p", warn=silent, step=first)
        for step in range(first, first + 3):
            loggers.log(step, {"loss": float(step)})
        loggers.close()
    starts = [
        event.step
        for path in (tmp_path / "tensorboard").iterdir()
        for event in EventFileLoader(str(path)).Load()
        if event.session_log.status == event.session_log.START
    ]
    assert starts == [2]


# the others, against modules with the documented calls


class Calls(ModuleType):
    """A module that notes its calls."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[Any, ...]] = []


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Calls:
    module = Calls("wandb")

    class Run:
        def define_metric(self, name: str, step_metric: str | None = None) -> None:
            module.calls.append(("define", name, step_metric))

        def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
            module.calls.append(("log", data, step))

        def finish(self, exit_code: int | None = None) -> None:
            module.calls.append(("finish", exit_code))

    def init(
        entity: str | None = None,
        project: str | None = None,
        dir: str | None = None,
        id: str | None = None,
        name: str | None = None,
        config: dict[str, Any] | None = None,
        resume: str | None = None,
    ) -> Run:
        module.calls.append(("init", project, name, id, dir, config, resume))
        return Run()

    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


@pytest.fixture
def trackio(monkeypatch: pytest.MonkeyPatch) -> Calls:
    module = Calls("trackio")

    def init(
        project: str, name: str | None = None, config: dict[str, Any] | None = None, resume: str = "never"
    ) -> None:
        module.calls.append(("init", project, name, config, resume))

    def log(metrics: dict[str, Any], step: int | None = None) -> None:
        module.calls.append(("log", metrics, step))

    def finish() -> None:
        module.calls.append(("finish",))

    for call in (init, log, finish):
        setattr(module, call.__name__, call)
    monkeypatch.setitem(sys.modules, "trackio", module)
    return module


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Calls:
    module = Calls("mlflow")

    def set_experiment(experiment_name: str | None = None, experiment_id: str | None = None) -> None:
        module.calls.append(("experiment", experiment_name))

    def start_run(run_id: str | None = None, experiment_id: str | None = None, run_name: str | None = None) -> Any:
        module.calls.append(("start", run_id, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id or "abc"))

    def log_params(params: dict[str, Any], synchronous: bool | None = None) -> None:
        assert len(params) <= 100
        module.calls.append(("params", params))

    def log_metrics(metrics: dict[str, float], step: int | None = None, synchronous: bool | None = None) -> None:
        module.calls.append(("log", metrics, step))

    def end_run(status: str = "FINISHED") -> None:
        module.calls.append(("end", status))

    for call in (set_experiment, start_run, log_params, log_metrics, end_run):
        setattr(module, call.__name__, call)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return module


def twice(name: str, folder: Path) -> None:
    """A run of that logger, then the same one resumed at step 2 that fails."""
    folder.mkdir()
    for first, status in ((0, "done"), (2, "failed")):
        settings = {"lr": 0.1, "model": {"path": None}}
        loggers = open_loggers([name], folder=folder, project="p", warn=silent, settings=settings, step=first)
        loggers.log(first, {"kl@token": 0.5})
        loggers.close(status)


def test_wandb_is_resumed_under_its_id_with_its_own_step_axis(wandb: Calls, tmp_path: Path) -> None:
    twice("wandb", tmp_path / "run-1")
    settings = {"lr": 0.1, "model": {"path": None}}
    known = wandb.calls[0][3]
    assert known
    assert not set(known) & set(r"/\#?%:")
    begun = [("init", "p", "run-1", known, str(tmp_path / "run-1"), settings, "allow"), ("define", "*", "step")]
    assert wandb.calls == [
        *begun,
        ("log", {"kl@token": 0.5, "step": 0}, None),
        ("finish", 0),
        *begun,
        ("log", {"kl@token": 0.5, "step": 2}, None),
        ("finish", 1),
    ]


def test_trackio_is_resumed_under_its_name(trackio: Calls, tmp_path: Path) -> None:
    twice("trackio", tmp_path / "run-1")
    name = trackio.calls[0][2]
    assert name.startswith("run-1-")
    begun = ("init", "p", name, {"lr": 0.1, "model": {"path": None}}, "allow")
    assert trackio.calls == [
        begun,
        ("log", {"kl@token": 0.5}, 0),
        ("finish",),
        begun,
        ("log", {"kl@token": 0.5}, 2),
        ("finish",),
    ]


def test_mlflow_is_resumed_by_id_and_gets_the_settings_once(mlflow: Calls, tmp_path: Path) -> None:
    twice("mlflow", tmp_path / "run-1")
    assert mlflow.calls == [
        ("experiment", "p"),
        ("start", None, "run-1"),
        ("params", {"lr": "0.1", "model.path": "None"}),
        ("log", {"kl_token": 0.5}, 0),  # a name MLflow would refuse
        ("end", "FINISHED"),
        ("experiment", "p"),
        ("start", "abc", None),
        ("log", {"kl_token": 0.5}, 2),
        ("end", "FAILED"),
    ]


def test_mlflow_gets_many_settings_in_parts(mlflow: Calls, tmp_path: Path) -> None:
    settings = {str(number): "x" * 900 for number in range(250)}
    open_loggers(["mlflow"], folder=tmp_path, project="p", warn=silent, settings=settings)
    parts = [call[1] for call in mlflow.calls if call[0] == "params"]
    assert [len(part) for part in parts] == [100, 100, 50]
    assert set(map(len, parts[0].values())) == {500}


# what can go wrong


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio", "mlflow"])
def test_a_missing_package_is_said_with_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=f"The logger {name} needs its package.*{re.escape(install_command(name))}"):
        open_loggers([name], folder=tmp_path, project="p", warn=silent)


def test_an_unknown_logger_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'tensorboard'"):
        open_loggers(["tensorbord"], folder=tmp_path, project="p", warn=silent)


def test_no_logger_is_imported_that_was_not_asked_for(wandb: Calls, tmp_path: Path) -> None:
    open_loggers([], folder=tmp_path, project="p", warn=silent).close()
    assert wandb.calls == []


def test_a_logger_that_cannot_start_is_refused_and_those_before_it_closed(
    wandb: Calls, trackio: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_key(**_: Any) -> None:
        raise RuntimeError("no API key")

    monkeypatch.setattr(wandb, "init", no_key)
    with pytest.raises(ConfigError, match=r"wandb cannot start: RuntimeError: no API key.*record\.loggers"):
        open_loggers(["trackio", "wandb"], folder=tmp_path, project="p", warn=silent)
    assert trackio.calls[-1] == ("finish",)


def test_a_run_directory_that_cannot_be_written_is_said_as_such(wandb: Calls, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"loggers\.json needs its folder"):
        open_loggers(["wandb"], folder=tmp_path / "absent", project="p", warn=silent)


class Breaking:
    """A logger whose n-th call raises."""

    def __init__(self, fault: int) -> None:
        self.fault = fault
        self.calls = 0

    def log(self, step: int, metrics: Any) -> None:
        self._call()

    def close(self, status: str = "done") -> None:
        self._call()

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.fault:
            raise ConnectionError("server gone")


@pytest.mark.parametrize("fault", [1, 2, 3])
def test_a_logger_that_raises_is_dropped_with_one_warning_and_the_others_go_on(fault: int) -> None:
    warnings: list[str] = []
    broken, sound = Breaking(fault), Breaking(99)
    loggers = Loggers({"broken": broken, "sound": sound}, warnings.append)
    loggers.log(0, {})
    loggers.log(1, {})
    loggers.close()
    assert (broken.calls, sound.calls) == (fault, 3)
    assert loggers.dropped == {"broken": "ConnectionError: server gone"}
    assert len(warnings) == 1
    assert "The logger broken failed" in warnings[0]


def test_closing_twice_closes_once() -> None:
    sound = Breaking(99)
    loggers = Loggers({"sound": sound}, silent)
    loggers.close()
    loggers.close()
    assert sound.calls == 1


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
