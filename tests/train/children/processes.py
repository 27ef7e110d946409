"""What /proc says of processes."""

from __future__ import annotations

from pathlib import Path


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def group_is_gone(leader: int) -> bool:
    """Whether no process of a group runs; one that ended and was not reaped yet does not."""
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = each.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == leader and state != "Z":
            return False
    return True


def children_of(parent: int) -> list[int]:
    return [
        int(each) for task in Path(f"/proc/{parent}/task").iterdir() for each in (task / "children").read_text().split()
    ]
