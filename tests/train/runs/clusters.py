"""Runs on a cluster that they start, and what is left of them."""

from __future__ import annotations

from pathlib import Path

from tests.train.started import Launcher, Started

RAY = {"backend": "ray", "evaluate": None, "checkpoint": {"every": 2}}


def actors(run: Started) -> list[int]:
    return run.children("ray::RaySampler")


def leftovers(folder: Path) -> list[str]:
    """Files of clusters, and of Ray in the user's home."""
    return [str(each) for each in (*folder.glob("t/*"), *folder.glob("home/.*"), *folder.glob("home/*"))]


def surroundings(launcher: Launcher) -> dict[str, str]:
    for name in ("t", "home"):
        (launcher.folder / name).mkdir(exist_ok=True)
    return {"TMPDIR": str(launcher.folder / "t"), "HOME": str(launcher.folder / "home")}
