"""A real cluster of several nodes on this machine, which can be taken away one by one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.waiting import until
from trimtab.train.backends.ray.cluster import ray_module


@dataclass(eq=False)
class Nodes:
    """A cluster: the learner's node, which has no room for samplers, and others that can be taken away."""

    cluster: Any
    ray: Any
    others: list[Any] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    def grow(self, count: int, **has: Any) -> None:
        """Until there are so many nodes that have this."""
        has = {"num_cpus": 2} | has
        until(self._settled, "the cluster knows who is gone")
        while len(self.others) < count:
            self.others.append(patient(lambda: self.cluster.add_node(**has)))

    def lose(self) -> None:
        """A node, with all that ran there, from one moment to the next."""
        node = self.others.pop()
        self.gone.add(node.node_id)
        self.cluster.remove_node(node, allow_graceful=False)

    def _settled(self) -> bool:
        return not any(node["Alive"] and node["NodeID"] in self.gone for node in self.ray.nodes())


def patient(start: Callable[[], Any]) -> Any:
    """Ray gives a node half a minute to start, which a busy machine may need more than once."""
    for _ in range(9):
        with suppress(Exception):
            return start()
    return start()


@contextmanager
def cluster_of_nodes() -> Iterator[Nodes]:
    """The learner's node; others are added as they are needed."""
    ray = ray_module()
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="tt-")
    (Path(folder) / "ray").mkdir()
    os.environ["RAY_TMPDIR"] = folder
    # A node that says nothing for a second or two is lost; by default it is ten.
    slow = {"health_check_period_ms": 500, "health_check_failure_threshold": 6, "health_check_initial_delay_ms": 5000}
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": slow}
    cluster = patient(lambda: Cluster(initialize_head=True, head_node_args=head))
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    try:
        yield Nodes(cluster, ray)
    finally:
        ray.shutdown()
        cluster.shutdown()
        del os.environ["RAY_TMPDIR"]
        shutil.rmtree(folder, ignore_errors=True)
