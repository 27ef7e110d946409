"""The real frameworks, where they are installed (`make parity`); elsewhere nothing here is collected."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

PEERS = ("verl", "areal", "skyrl", "trl", "openrlhf", "swift")
collect_ignore_glob = [] if all(importlib.util.find_spec(name) for name in PEERS) else ["test_*.py"]
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # peers.py: the frameworks' functions on a CPU
