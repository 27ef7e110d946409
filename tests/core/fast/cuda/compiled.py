"""Every kernel as it is called, compiled to machine code for GPUs, without one. What the interpreter lets pass may fail here."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import mangle_type

from trimtab.config.algebra import Correction, Gate, Limit, Weight
from trimtab.config.losses import Clip
from trimtab.core.correct import correct
from trimtab.core.fast import switch
from trimtab.core.fast.cuda import launch as starter
from trimtab.losses.policy import policy_loss

assert os.environ.get("TRITON_INTERPRET") != "1"

TARGETS = {"A100": 80, "H100": 90}
RULE = Correction(
    gates=(
        Gate(metric="k3", level="sequence", upper=0.5),
        Gate(metric="ratio", upper=3.0, scope="kept", action="zero"),
    ),
    weight=Weight(level="token", upper=2.0),
)


def type_of(given: Any) -> Any:
    return tuple(type_of(each) for each in given) if isinstance(given, tuple) else mangle_type(given)


def compiled(capability: int, kernel: Any, given: tuple[Any, ...], settings: dict[str, Any]) -> Any:
    """A kernel for the arguments of a call, as Triton itself would compile it on such a GPU."""
    named = dict(zip(kernel.arg_names, given, strict=False)) | settings
    options = {name: named.pop(name) for name in ("num_warps", "enable_fp_fusion")}
    fixed = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    signature = {name: "constexpr" if name in fixed else type_of(value) for name, value in named.items()}
    places = {(kernel.arg_names.index(name),): named[name] for name in fixed}
    source = ASTSource(kernel, signature=signature, constexprs=places)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


@pytest.fixture(params=os.environ["TARGETS"].split())
def machine_code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Calls on a CPU that compile each kernel in place of starting it, by name."""
    found: dict[str, Any] = {}

    class Kernel:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: tuple[int]) -> Any:
            return self.start

        def start(self, *given: Any, **settings: Any) -> None:
            name = self.kernel.__name__
            found[name] = compiled(TARGETS[request.param], self.kernel, given, settings)

    launch = starter.launch
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    monkeypatch.setattr(switch, "WRITTEN_IN", {"cpu": "triton"})
    monkeypatch.setattr(starter, "launch", lambda kernel, *given, **rest: launch(Kernel(kernel), *given, **rest))
    return found


def test_every_kernel_compiles(machine_code: dict[str, Any]) -> None:
    rows, mask = -torch.rand(2, 3), torch.ones(2, 3).bool()
    out = policy_loss(
        Clip(), correction=RULE, current=rows, proximal=rows, behavior=rows, advantages=torch.ones(2), mask=mask
    )
    assert out.metrics["tokens"].shape == ()
    assert sorted(machine_code) == ["clip_rows", "decide_rows", "fold_records", "write_figures", "write_loss"]
    for name, code in machine_code.items():
        assert len(code.asm["cubin"]) > 1000, name
        assert code.metadata.shared < 48 * 1024, name  # what every GPU has


@pytest.mark.slow
def test_packed_rows_and_half_precision_compile(machine_code: dict[str, Any]) -> None:
    rows, mask = -torch.rand(3).bfloat16(), torch.ones(3)
    gate = Gate(metric="mult_prob_error", level="sequence", agg="every", upper=2.0, limit=Limit(bound=1.0))
    rule = Correction(gates=(gate,), weight=Weight(level="geometric", upper=2.0, scope="kept"))
    correct(
        rule, proximal=rows, behavior=rows.float(), mask=mask, cu_seqlens=torch.tensor([0, 1, 3], dtype=torch.int32)
    )
    assert "decide_rows" in machine_code
