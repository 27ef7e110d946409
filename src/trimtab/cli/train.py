"""`trimtab train` and `trimtab report`: a run from a file and overrides, shown while it goes on."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli import show
from trimtab.cli.progress import Progress
from trimtab.config.files import explained_yaml, plain_settings
from trimtab.config.training import Train
from trimtab.errors import ConfigError, InUseError, RunError

if TYPE_CHECKING:
    from trimtab.train.loop import Result

STOP_SIGNALS = {
    "interrupted": signal.SIGINT,
    "terminated": signal.SIGTERM,
    "hung up": getattr(signal, "SIGHUP", signal.SIGTERM),
}
"""The signal behind each reason to stop early; the exit code is 128 more."""

RESUMABLE = ("steps", "learner.device", "learner.ranks", "learner.shard")
"""What a run that goes on may have otherwise: how far it goes, and where its learner runs."""


def train_command(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE.yaml] [key=value]…", help="A file of settings, then dotted keys (rollout.max_staleness=8)."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Run directory. Default: runs/TASK-0001 and so on.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Continue from the newest checkpoint of a run.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print every setting with its meaning, as YAML, and stop.")
    ] = False,
    report: Annotated[bool, typer.Option(help="Write report.html at the end.")] = True,
) -> None:
    """Train a policy with asynchronous rollouts and a correction.

    Without arguments: a tiny policy, made and warm-started here, learns running sums of 24 digits by GRPO, on samples up to
    two versions stale; two to three minutes on two cores. Ctrl-C stops after saving; --resume continues.
    """
    with _safe_streams():
        if not dry_run and os.environ.get("TORCHELASTIC_RUN_ID") and os.environ.get("RANK", "0") != "0":
            _follow()
            return
        _train(settings or [], out, resume, dry_run=dry_run, report=report)


def _train(settings: list[str], out: Path | None, resume: Path | None, *, dry_run: bool, report: bool) -> None:
    config = resumed_config(resume, settings) if resume else config_from(settings)
    if dry_run:
        _check_task(config)
        show.put_raw(explained_yaml(config) + "\n")
        return
    result, path = _run(config, out, resume)
    with _enough_files():
        page = _write_report(path) if report and result.steps else None
    with suppress(OSError):
        show.put(*_summary(config, result, page))
    if result.stopped:
        raise typer.Exit(128 + STOP_SIGNALS[result.stopped])


def _run(config: Train, out: Path | None, resume: Path | None) -> tuple[Result, Path]:
    """Train; what became of it, and where it is. However often it is asked to stop meanwhile, it ends with one sentence."""
    from trimtab.train.stop import Stop

    with Stop(waits=False) as stop:
        path = resume or out
        try:
            with _enough_files():
                _quiet_libraries()
                from trimtab.records.run import free_name
                from trimtab.train.loop import train as run

                path = path or free_name(Path("runs"), config.task.name.replace(":", "-"))
                with Progress(config.steps) as display:
                    return run(config, path, resume=resume is not None, display=display, stop=stop), path
        except KeyboardInterrupt as error:  # a second request to stop, or one before the run began
            stop.end()
            if path is not None and (path / "run.json").exists():
                with suppress(OSError):
                    show.note(f"Interrupted without saving. {_resume_hint(path)}")
            raise typer.Exit(128 + getattr(error, "number", signal.SIGINT)) from None
        except InUseError:
            raise
        except RunError as error:
            if path is None or not (path / "run.json").exists():  # what is no run has nothing to go on with
                raise
            raise type(error)(f"{error}\n{_resume_hint(path)}") from None


@contextmanager
def _enough_files() -> Generator[None]:
    """Where the system gives no more open files, that is said: it can happen anywhere, an import included."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise RunError(
            f"trimtab train needs more open files than the system allows: {error.strerror}. Raise the limit with `ulimit -n`."
        ) from error


def _check_task(config: Train) -> None:
    """Refuse what the run would refuse of its task; for a dry run nothing is fetched, and nothing of the user's is run."""
    from trimtab.train.tasks import check_replies, check_task, is_at_hand, source

    check_task(config.task)
    if is_at_hand(config.task):
        check_replies(config.rollout.engine, source(config.task, config.seed))


def _follow() -> None:
    """What torchrun started beside the run's own process: it gets its settings from there."""
    _quiet_libraries()
    from trimtab.train.learner.team import follow_torchrun

    follow_torchrun()


@contextmanager
def _safe_streams() -> Generator[None]:
    """A run does not depend on who listens: streams that are closed, full or without a reader take nothing and stop nothing."""
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file to be opened would get its number, and what others print
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if number == 0 else "w"))  # noqa: SIM115
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # what is left would be tried once more at the end, and change the exit code
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|LOG", help="Run directories, finished or not; or logs of other trainers, files or folders."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Where to write. Default: RUN/report.html, or compare.html for several runs; no page for logs.",
        ),
    ] = None,
    charts: Annotated[
        Path | None, typer.Option("--charts", metavar="DIR", help="Also write each chart as an SVG file there.")
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option("--from", metavar="NAME", help="Logs: whose names they hold. Recognised if you leave it out."),
    ] = None,
    mapped: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OURS=THEIRS", help="Logs: a name of yours for a metric of ours; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Logs: print JSON.")] = False,
    fail_on: Annotated[
        str | None,
        typer.Option("--fail-on", metavar="certain", help="Logs: exit with 1 if something is certainly wrong."),
    ] = None,
) -> None:
    """Write the report of a run, or one page that compares several; or say what logs of other trainers show.

    For one run: what became of it, why, and what to try. For several: verdicts side by side, curves over each other, and the
    settings in which they differ. The page is one HTML file that needs no network.

    For logs (W&B's local files, TensorBoard, trainer_state.json, JSON Lines, trackio, MLflow's folders, consoles of verl, slime, miles and
    OpenRLHF): what was measured, what moved first, what is certain by arithmetic, and what curves cannot tell.
    """
    is_log = [not os.path.isfile(path / "run.json") for path in runs]  # False for a name that no file can have
    if any(is_log):
        if not all(is_log):
            raise ConfigError("report needs either run directories or logs, got both. Call it for each.")
        if charts is not None:
            raise ConfigError("--charts needs run directories, got logs. -o writes a page with their curves.")
        from trimtab.cli.report_log import report_logs  # with numpy

        report_logs(runs, out, framework=framework, mapped=mapped or [], as_json=as_json, fail_on=fail_on)
        return
    from trimtab.report import write_charts, write_comparison, write_report

    page = write_report(runs[0], out) if len(runs) == 1 else write_comparison(runs, out or Path("compare.html"))
    show.put(f"report  {page}")
    if charts is not None:
        show.put(f"charts  {len(write_charts(runs, charts))} files in {charts}")


def config_from(given: Iterable[str]) -> Train:
    """The run that a file and overrides, or overrides alone, describe."""
    words = list(given)
    file = words.pop(0) if words and "=" not in words[0] else None
    settings = plain_settings(file, words)
    try:
        return Train.from_settings(settings).runnable()
    except ConfigError as error:
        raise type(error)(f"{file}: {error}" if file else str(error)) from None


def resumed_config(path: Path, given: Iterable[str]) -> Train:
    """The settings of a run; only `steps` can be changed, to go on for longer, and where its learner runs."""
    from trimtab.records.run import RunDirectory

    changes = list(given)
    wrong = [change for change in changes if change.partition("=")[0] not in RESUMABLE]
    if wrong:
        raise ConfigError(
            f"--resume needs the settings of the run, got {wrong[0]!r}. Only {', '.join(RESUMABLE)} can be changed."
        )
    settings: dict[str, Any] = RunDirectory.read(path).settings
    given_now = plain_settings(None, changes)
    learner = settings.get("learner", {})
    if isinstance(learner, dict):  # else the file is wrong, and the reader below says so
        learner = learner | given_now.pop("learner", {})
    return Train.from_settings(settings | given_now | {"learner": learner})


def _summary(config: Train, result: Result, page: Path | None) -> list[Any]:
    facts = [
        ("held-out accuracy", _accuracies(result)),
        ("steps", f"{result.steps} of {config.steps}"),
        ("time", f"{result.seconds:.0f} s"),
        ("run", str(result.path)),
    ]
    facts += [("report", str(page))] if page else []
    lines: list[Any] = [show.table(("", ""), facts)]
    if result.stopped:
        lines.append(f"{result.stopped.capitalize()}. {_resume_hint(result.path)}")
    return lines


def _resume_hint(path: Path) -> str:
    return f"Continue with: trimtab train --resume {shlex.quote(str(path))}"


def _accuracies(result: Result) -> str:
    if result.before is None or result.after is None:
        return "not evaluated"
    return f"{result.before:.3f} → {result.after:.3f} (best {result.best:.3f})"


def _write_report(path: Path) -> Path | None:
    from trimtab.report import write_report

    return write_report(path)


def _quiet_libraries() -> None:
    """No progress bars of other libraries over ours, and no warnings about forks."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers.utils import logging

    logging.disable_progress_bar()
