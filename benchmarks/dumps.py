"""Reads NeMo-RL JSON Lines of growing size: seconds of one core, peak memory, and whether the cost is linear.

python benchmarks/dumps.py [MILLIONS …]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

LENGTH = 1000


def write(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for index in range(rows):
            behavior = np.where(np.arange(LENGTH) < 100, 0.0, -rng.exponential(0.5, LENGTH)).astype(np.float32)
            row = {
                "content": ["text"],
                "rewards": [1.0],
                "input_lengths": [LENGTH],
                "token_ids": [rng.integers(0, 150_000, LENGTH).tolist()],
                "token_loss_mask": [[0] * 100 + [1] * (LENGTH - 100)],
                "sample_loss_mask": [1.0],
                "advantages": [[0.5] * LENGTH],
                "generation_logprobs": [behavior.tolist()],
                "prev_logprobs": [(behavior - rng.exponential(0.01, LENGTH).astype(np.float32)).tolist()],
                "idx": index,
            }
            file.write(json.dumps(row) + "\n")


def read(path: Path) -> None:
    from trimtab.records.dumps import load

    before = resource.getrusage(resource.RUSAGE_SELF)
    batch = load([path])
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{int(batch.offsets[-1])} {seconds:.2f} {after.ru_maxrss / 1e6:.2f}")


def main() -> None:
    if sys.argv[1:2] == ["--read"]:
        return read(Path(sys.argv[2]))
    print("tokens     file      CPU seconds   per million   peak memory")
    for millions in [float(each) for each in sys.argv[1:]] or [0.25, 1.0, 4.0]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "train_data_step1.jsonl"
            write(path, int(millions * 1e6 / LENGTH))
            command = [sys.executable, __file__, "--read", str(path)]
            tokens, seconds, memory = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            size = path.stat().st_size / 1e6
        print(f"{tokens:>8} {size:6.0f} MB {seconds:>12} {float(seconds) / millions:13.2f} {memory:>10} GB")
    return None


if __name__ == "__main__":
    main()
