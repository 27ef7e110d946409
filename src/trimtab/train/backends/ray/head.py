"""The head of a cluster of the run's own. Runs alone, under a guard: python head.py ADDRESS_FILE OPTIONS

It is not the run's process that starts the cluster, because signals that a terminal or a scheduler sends to the run and all it
started would end Ray before the run has saved.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import ray


def lead(address: str, options: str) -> None:
    """Start a cluster, write where it is to the file `address`, and stay."""
    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        **json.loads(options),
    )
    with open(f"{address}.part", "w") as file:
        file.write(ray.get_runtime_context().gcs_address)
    os.replace(f"{address}.part", address)
    while True:
        signal.pause()


if __name__ == "__main__":
    lead(sys.argv[1], sys.argv[2])
