"""The other ranks of a learner: started by the run on this machine, or found as torchrun started them.

rank 0   step(answers) ──order: rows──► learn   weights() ──order──► gathered, name by name   save, load, close
others   follow_orders:                 learn                        gathered                 gather, take, end

Rank 0 is the process of the run. The others follow its orders, end with it whatever ends it, and are deaf to Ctrl-C: when a run
stops, rank 0 decides what is still done. One that the run starts is `python -m trimtab.train.learner.team RANK SIZE FOLDER PID`.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from trimtab.config.training import LearnerSettings, Train
from trimtab.errors import ConfigError, RunError
from trimtab.train.children.children import Child, die_with, end_children, ignore_signals
from trimtab.train.devices import device_of
from trimtab.train.learner.learner import Learner
from trimtab.train.learner.ranks import MEETING, LearnerRanks, RankOrder, put_whole
from trimtab.train.learner.state import once_each, share_state

LEAVE = 10.0
"""Seconds a rank has to go by itself once it was told to, before it is killed."""
_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


def torchrun_rank() -> int | None:
    """The rank that torchrun gave this process; None where it did not start it."""
    return int(os.environ["RANK"]) if dist.is_torchelastic_launched() and "RANK" in os.environ else None


@contextmanager
def learner_ranks(settings: LearnerSettings, folder: Path) -> Generator[LearnerRanks]:
    """Rank 0's view of its ranks, which wait for their first order; of a run in one process, itself alone."""
    if torchrun_rank() is not None and int(os.environ["WORLD_SIZE"]) > 1:
        with _joined_by_torchrun(settings) as ranks:
            yield ranks
    elif settings.ranks > 1:
        with _started(settings, folder) as ranks:
            yield ranks
    else:
        yield LearnerRanks(device_of(settings.device))


def follow_torchrun() -> None:
    """The life of a process that torchrun started as a rank above 0."""
    die_with(os.getppid())
    dist.init_process_group(_backend(), timeout=MEETING)
    _follow()


@contextmanager
def _joined_by_torchrun(settings: LearnerSettings) -> Generator[LearnerRanks]:
    size = int(os.environ["WORLD_SIZE"])
    if settings.shard == "none":
        raise ConfigError(
            f"torchrun with {size} processes needs learner.shard ddp or fsdp, got none. Name one of them."
        )
    if settings.ranks not in (1, size):
        raise ConfigError(
            f"learner.ranks needs to be left out under torchrun, or to be its {size} processes, got {settings.ranks}."
        )
    die_with(os.getppid(), signal.SIGTERM)  # then as if asked to stop: save, and end
    dist.init_process_group(_backend(), timeout=MEETING)
    place = os.environ["LOCAL_RANK"]
    for name in [*_TORCHRUN, *(each for each in os.environ if each.startswith("TORCHELASTIC_"))]:
        os.environ.pop(name, None)  # samplers and servers of this run are no part of that group
    os.environ["LOCAL_RANK"] = place
    try:
        yield LearnerRanks.joined("torchrun prints what it wrote")
    finally:
        os.environ.pop("LOCAL_RANK", None)
        with suppress(RuntimeError):
            dist.destroy_process_group()


@contextmanager
def _started(settings: LearnerSettings, folder: Path) -> Generator[LearnerRanks]:
    """Followers as processes of this machine, found through a file that only this user can read."""
    logs = folder / "ranks"
    logs.mkdir(parents=True, exist_ok=True)
    meeting = Path(tempfile.mkdtemp(prefix="trimtab-ranks-"))
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are here: nothing listens to the network
    others: list[Child] = []
    try:
        for rank in range(1, settings.ranks):
            others.append(_start(rank, settings.ranks, meeting, logs / f"rank-{rank}.log"))
        _wait_for(others, meeting, logs)
        store = _store(meeting, settings.ranks)
        dist.init_process_group(_backend(), store=store, rank=0, world_size=settings.ranks, timeout=MEETING)
        try:
            yield LearnerRanks.joined(f"Look at {logs}")
        finally:
            with suppress(RuntimeError):
                dist.destroy_process_group()
        end_children(others, LEAVE)
    finally:
        end_children(others)
        shutil.rmtree(meeting, ignore_errors=True)


def _start(rank: int, size: int, meeting: Path, log: Path) -> Child:
    words = [str(rank), str(size), str(meeting), str(os.getpid())]
    command = [sys.executable, "-m", "trimtab.train.learner.team", *words]
    return Child(command, environment=os.environ, log=log)


def _wait_for(others: list[Child], meeting: Path, logs: Path) -> None:
    """Until each has said that it is there."""
    deadline = time.monotonic() + MEETING.total_seconds()
    for rank, process in enumerate(others, 1):
        while not (meeting / str(rank)).exists():
            if process.ended or time.monotonic() > deadline:
                got = f"one that {process.ended or 'gave no sign'}"
                log = logs / f"rank-{rank}.log"
                raise RunError(f"learner.ranks needs rank {rank} to start, got {got}. Look at {log}.")
            time.sleep(0.02)


def _store(meeting: Path, size: int) -> Any:
    """Where ranks on one machine find one another: a file, so that nothing listens."""
    return dist.FileStore(str(meeting / "store"), size)  # pyright: ignore[reportPrivateImportUsage]


def run_follower(rank: int, size: int, meeting: Path, learner: int) -> None:
    """The life of a rank that the run started."""
    die_with(learner)
    (meeting / str(rank)).touch()
    store = _store(meeting, size)
    dist.init_process_group(_backend(), store=store, rank=rank, world_size=size, timeout=MEETING)
    _follow()


def _follow() -> None:
    """Leave requests to stop to rank 0; until it was met there is nobody to leave them to."""
    faulthandler.enable()
    ignore_signals(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ranks = LearnerRanks.joined()
    with ranks.watched():
        follow_orders(ranks)
    with suppress(RuntimeError):
        dist.destroy_process_group()


def _backend() -> str:
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def brief_others(config: Train, models: Sequence[PreTrainedModel | None], ranks: LearnerRanks) -> None:
    """Rank 0: give the others, which wait in `follow_orders`, settings and weights. Models: the trained one, the reference, the teacher."""
    if ranks.size == 1:
        return
    ranks.tell(config)
    ranks.place(config.learner)
    for each in models:
        _send_model(each, ranks)


def follow_orders(ranks: LearnerRanks) -> None:
    """The life of every rank but the first: a learner like its own, moved by its orders. Ends when rank 0 does."""
    config: Train = ranks.tell()
    ranks.place(config.learner)
    torch.set_num_threads(config.threads)
    model, reference, teacher = (_receive_model(ranks) for _ in range(3))
    assert model is not None
    own = Learner(config, model, reference, ranks, teacher=teacher)
    while True:
        order: RankOrder = ranks.tell()
        match order.kind:
            case "learn":
                assert order.rows is not None
                own.version = order.version
                own.learn(order.rows.to(ranks.device))
            case "weights":
                for _ in own.gathered():
                    pass
            case "gather":
                own.gather()
            case "take":
                own.take(share_state(None, ranks))
            case "end":
                return


def _send_model(model: PreTrainedModel | None, ranks: LearnerRanks) -> None:
    """Architecture, then weights one by one; None: there is no such model."""
    described: Any = None
    if model is not None:
        described = (model.config, model.dtype, [(name, each.shape, each.dtype) for name, each in once_each(model)])
    ranks.tell(described)
    if model is not None:
        for _, tensor in once_each(model):
            ranks.share(tensor, tensor.shape, tensor.dtype)


def _receive_model(ranks: LearnerRanks) -> PreTrainedModel | None:
    described: tuple[PretrainedConfig, torch.dtype, list[tuple[str, torch.Size, torch.dtype]]] | None = ranks.tell()
    if described is None:
        return None
    architecture, dtype, kinds = described
    model: PreTrainedModel = AutoModelForCausalLM.from_config(architecture, dtype=dtype, trust_remote_code=False)
    own = model.state_dict()
    with torch.no_grad():
        for name, shape, kind in kinds:
            put_whole(own[name], ranks.share(None, shape, kind))
    return model


if __name__ == "__main__":
    rank, size, meeting, learner = sys.argv[1:]
    try:
        run_follower(int(rank), int(size), Path(meeting), int(learner))
    except RunError as error:
        sys.exit(str(error))
