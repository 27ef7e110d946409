"""The cluster that a run starts: what other users of the machine, and other machines, can reach of it."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab.config.rollout import Ray
from trimtab.errors import RunError
from trimtab.train.backends.ray import cluster as module
from trimtab.train.backends.ray.cluster import OwnCluster, own_text

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a moment")

STRANGER = """
import json, os, sys
folder = sys.argv[1]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
done = []
for name, attempt in {
    "list": lambda: os.listdir(folder),
    "look below": lambda: os.listdir(folder + "/ray"),
    "read the address": lambda: open(folder + "/address").read(),
    "plant an address": lambda: open(folder + "/address", "w").write("127.0.0.1:9"),
    "plant below": lambda: open(folder + "/ray/planted", "w"),
    "rename": lambda: os.rename(folder + "/lock", folder + "/moved"),
}.items():
    try:
        attempt()
    except PermissionError:
        continue
    done.append(name)
print(json.dumps(done))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    made = OwnCluster(Ray(), samplers=1, log=tmp_path_factory.mktemp("cluster") / "ray.log")
    try:
        made.address()
        yield made
    finally:
        made.close()


@as_root
def test_no_other_user_reaches_the_files_of_a_cluster_or_says_where_it_is(cluster: OwnCluster) -> None:
    said = subprocess.run(
        [sys.executable, "-c", STRANGER, str(cluster.folder)], capture_output=True, text=True, check=True, cwd="/"
    )
    assert json.loads(said.stdout) == []
    assert stat.S_IMODE(cluster.folder.stat().st_mode) == 0o700


@as_root
def test_an_address_that_somebody_else_wrote_is_refused(tmp_path: Path) -> None:
    (tmp_path / "address").write_text("127.0.0.1:9")
    assert own_text(tmp_path / "address") == "127.0.0.1:9"
    os.chown(tmp_path / "address", NOBODY, NOBODY)
    with pytest.raises(RunError, match=f"needs to be a file of user 0, got one of user {NOBODY}"):
        own_text(tmp_path / "address")


def test_a_cluster_of_the_run_listens_on_the_loopback_only(cluster: OwnCluster) -> None:
    assert cluster.address().startswith("127.0.0.1:")
    heard = listening(cluster._session.pid)
    assert len(heard) > 3
    assert {address for address in heard if not address.startswith(("127.", "::ffff:127."))} == set()


def test_paths_of_sockets_fit_whatever_the_number_of_the_process(cluster: OwnCluster) -> None:
    # Ray names a session by date and pid; Linux has no pid of more than seven digits.
    sockets = [len(os.fsencode(path)) for path in cluster.folder.glob("ray/session_2*/sockets/*")]
    digits = 2 * (7 - len(str(os.getpid())))
    assert max(sockets) + digits <= 107
    assert module.ROOM_FOR_SOCKETS + 33 + len("/ray") + 64 <= 107


def listening(session: int) -> list[str]:
    """Addresses on which the processes of a session listen."""
    inodes: set[str] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) != session:
                continue
            links = [os.readlink(each) for each in (folder / "fd").iterdir()]
        except OSError:
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    found: list[str] = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:  # 0A: listens
                found.append(_readable(fields[1].partition(":")[0], family))
    return found


def _readable(digits: str, family: int) -> str:
    words = [bytes.fromhex(digits[start : start + 8])[::-1] for start in range(0, len(digits), 8)]
    return socket.inet_ntop(family, b"".join(words))
