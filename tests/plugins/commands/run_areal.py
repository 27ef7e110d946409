"""`from trimtab.plugins.areal import PPOTrainer` as docs/plugins.md has it: AReaL's trainer, RLVR workflow, SGLang client and FSDP actor.

Only the SGLang server is stood in for (`server.py`); weights reach it by `weight_update_mode: disk`. AReaL asks for SGLang's version even
where the server is another machine's: `areal_cpu` has one.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import trimtab
from tests.plugins.commands.figures import Run, judge, kept_gradients
from tests.plugins.commands.made import save
from tests.plugins.commands.process import TREE, finish, numbers, served

CONFIGURATION = Path(__file__).with_name("areal.yaml")
OWN = {"level": "sequence", "action": "mask", "metric": "ratio", "agg": "mean", "lower": 0.95, "upper": 1.05}
KEPT = "trimtab/kept_fraction"
DOCUMENTED = {"correction": {"preset": "geo-rs+token-tis", "upper": 1.05}, "loss": "cispo"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(folder: Path, name: str, plan: Any = None, *words: str) -> Run:
    """The ten lines in a process of their own, as the one rank of an SPMD run."""
    with served(folder / "model") as address:
        alone = {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "LOCAL_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
        areal = {
            "PYTHONPATH": f"{TREE}:{Path(__file__).parent / 'areal_cpu'}",
            "AREAL_SPMD_MODE": "1",
            "AREAL_LLM_SERVER_ADDRS": address,
            "AREAL_CACHE_DIR": str(folder / "cache"),
            "KEPT_GRADIENTS": str(folder / name),
        }
        command = [sys.executable, "-m", "tests.plugins.commands.areal_lines", "" if plan is None else json.dumps(plan)]
        command += [
            "--config",
            str(CONFIGURATION),
            f"actor.path={folder / 'model'}",
            f"cluster.fileroot={folder / name}-files",
            *words,
        ]
        said = finish("AReaL", name, command, folder, alone | areal)
    return Run(kept_gradients(folder / name), numbers(said, KEPT))


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="trimtab-areal-"))
    save(folder / "model")
    own = [f"+actor.rejection_sampling.{key}={value}" for key, value in OWN.items()]
    read = trimtab.dialects.read("areal", {"actor": {"rejection_sampling": OWN, "use_decoupled_loss": True}}).correction
    assert read is not None
    runs = {
        "documented": run(folder, "documented", DOCUMENTED),
        "theirs": run(folder, "theirs", None, *own),
        "ours": run(folder, "ours", {"correction": read.settings(), "metrics": "all"}),
        "off": run(folder, "off"),
    }
    code = judge("AReaL", runs)
    if code == 0:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
