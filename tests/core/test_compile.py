"""`torch.compile(fullgraph=True)` traces a correction whole, by value and by name, in both layouts, with its metrics."""

from __future__ import annotations

import subprocess
import sys

from tests.waiting import LIMIT

# In a process of its own: the run-time shape checker of the tests is not made to be traced.
SCRIPT = """
import torch
from torch._dynamo.backends.debugging import aot_eager
from trimtab.config.presets import preset
from trimtab.core.correct import correct

rows, width = 6, 16
generator = torch.Generator().manual_seed(0)
behavior = -torch.rand(rows, width, generator=generator)
proximal = behavior + 0.05 * torch.randn(rows, width, generator=generator)
mask = torch.rand(rows, width, generator=generator) < 0.8
advantages = torch.randn(rows, generator=generator)
for name in ("geo-rs+token-mis", "seq-tis", "opsm", "m2po", "bypass-token-tis"):
    for packed in (False, True):
        rule, bounds = name if packed else preset(name), torch.arange(rows + 1) * width if packed else None
        tensors = [each.flatten() if packed else each for each in (behavior, proximal, mask)]

        def step(behavior, proximal, mask):
            out = correct(
                rule, behavior=behavior, proximal=proximal, current=proximal, mask=mask, advantages=advantages, cu_seqlens=bounds
            )
            return out.weight, out.kept.float(), *(out.metrics[each] for each in ("drift/k3", "weight/ess", "kept_fraction"))

        torch.compiler.reset()
        graphs = []

        def counted(graph, inputs):
            graphs.append(graph)
            return aot_eager(graph, inputs)

        compiled = torch.compile(step, fullgraph=True, backend=counted)
        for found, wanted in zip(compiled(*tensors), step(*tensors), strict=True):
            torch.testing.assert_close(found, wanted)
        assert len(graphs) == 1, len(graphs)
        print(name, packed)
"""


def test_a_correction_compiles_to_one_graph() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert len(run.stdout.split()) == 20
