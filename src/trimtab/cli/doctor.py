"""`trimtab doctor`: what this machine has, what works on it, and what to install or set for what does not."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from trimtab import __version__
from trimtab.cli import show
from trimtab.installed import EXTRAS, install_command, packages_of, version_of
from trimtab.train.devices import SAFE_ISA, bf16_product

Mark = Literal["ok", "note", "broken"]
MARK_STYLES: dict[Mark, str] = {"ok": "green", "note": "yellow", "broken": "bold red"}


WARMED = (
    "off",
    "token-tis",
    "icepop",
    "seq-tis",
    "seq-mis",
    "token-mis",
    "geo-rs",
    "geo-rs+token-tis",
    "geo-rs+seq-tis",
    "k2-rs",
    "seq-max-k3",
    "veto",
)
"""Rules that between them call every function that is compiled by itself."""


@dataclass(frozen=True)
class Check:
    """One line of the page: what was looked at, how it stands, what was found and what to do about it."""

    name: str
    mark: Mark
    found: str
    remedy: str = ""


def doctor(
    warm: Annotated[
        bool,
        typer.Option(
            "--warm", help="Compile the fast pass beforehand and keep it on disk, so that no first step waits for it."
        ),
    ] = False,
) -> None:
    """Check this machine and this installation.

    Looks at versions, devices, threads, extras and the processor, then compares a few results with values worked out by hand.
    Something that is merely not installed is a note, with the command that installs it. Exit code 1 if something is broken.
    """
    if warm:
        show.put(_warm())
        return
    checks = [
        check for section in (_versions, _devices, _extras, _folders, _processor, _self_test) for check in section()
    ]
    rows = [(check.name, show.with_style(check.mark, MARK_STYLES[check.mark]), _line(check)) for check in checks]
    show.put(show.table(("CHECK", "STATUS", "DETAILS"), rows))
    broken = [check.name for check in checks if check.mark == "broken"]
    show.put("", f"Broken: {', '.join(broken)}." if broken else "No problems found.")
    if broken:
        raise typer.Exit(1)


def _line(check: Check) -> str:
    return f"{check.found}. {check.remedy}" if check.remedy else check.found


def _versions() -> list[Check]:
    parts = [
        f"trimtab {__version__}",
        f"Python {platform.python_version()}",
        f"{platform.system()} {platform.machine()}",
    ]
    libraries = [
        f"{name} {version}" for name in ("pydantic", "jaxtyping", "transformers") if (version := version_of(name))
    ]
    return [Check("versions", "ok", ", ".join(parts)), Check("libraries", "ok", ", ".join(libraries)), _torch()]


def _torch() -> Check:
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # a broken build fails in many ways, each of which is the finding
        return Check("torch", "broken", f"{type(error).__name__}: {error}", "Install it: pip install torch")
    return Check("torch", "ok", str(torch.__version__))


def _devices() -> list[Check]:
    try:
        torch: Any = importlib.import_module("torch")
    except Exception:  # said above
        return []
    cores, threads = os.cpu_count() or 1, int(torch.get_num_threads())
    text = f"{cores} cores; torch uses {threads} per operation, a trimtab run 1 (setting `threads`)"
    found = [Check("threads", "ok", text)]
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    devices = ", ".join([f"cuda:{index} {name}" for index, name in enumerate(names)])
    if not devices:
        devices = "mps" if torch.backends.mps.is_available() else "CPU only; every command runs on it"
    return [*found, Check("accelerators", "ok", devices), *_forms()]


def _forms() -> list[Check]:
    """Which form corrections and losses take."""
    from trimtab.core.fast.fits import form_in_use

    compiled = "the plain form, which torch.compile(fullgraph=True) fuses"
    return [Check("fast form: cpu", "ok", form_in_use()), Check("fast form: cuda", "ok", compiled)]


def _warm() -> str:
    """Run what the pass is made of, so that all of it lies compiled on disk, and say what it took."""
    from trimtab.core.fast.fits import form_in_use, has_pass

    if not has_pass():
        return f"Nothing to compile: corrections and losses take {form_in_use()}."
    from trimtab.core.fast.loops import NOTICE

    NOTICE.said = True  # whoever asks for it knows
    show.note("compiling the fast pass, about half a minute on one core the first time")
    began = time.perf_counter()
    calls = 0
    for rule, packed, rows, gaps in product(WARMED, (False, True), (4, 80), (False, True)):
        _call_pass(rule, packed=packed, rows=rows, gaps=gaps)
        calls += 1
    return f"The fast pass is compiled and cached on disk: {calls} batches in {time.perf_counter() - began:.1f} s."


def _call_pass(rule: str, *, packed: bool, rows: int, gaps: bool) -> None:
    """A correction and a loss of one batch, padded or packed, short or long, with every metric read."""
    import torch

    from trimtab import Clip, correct, policy_loss

    draw = torch.Generator().manual_seed(0)
    shape = (rows * 80,) if packed else (rows, 80)
    behavior = -torch.rand(shape, generator=draw) - 0.5
    proximal = behavior + 0.05 * torch.randn(shape, generator=draw)
    mask = torch.rand(shape, generator=draw) > 0.3 if gaps else torch.ones(shape, dtype=torch.bool)
    laid: dict[str, Any] = {"behavior": behavior, "proximal": proximal, "mask": mask}
    if packed:
        laid["cu_seqlens"] = torch.arange(0, rows * 80 + 1, 80)
    _ = [each.item() for each in correct(rule, **laid).metrics.values()]
    for dual, reduction in ((None, "token-mean"), (3.0, "seq-mean-token-sum")):
        current = (proximal + 0.01).requires_grad_()
        advantages = torch.randn(shape if packed else (rows,), generator=draw)
        found = policy_loss(
            Clip(dual=dual), current=current, correction=rule, advantages=advantages, reduction=reduction, **laid
        )
        found.loss.backward()
        _ = [each.item() for each in found.metrics.values()]


def _extras() -> list[Check]:
    return [_extra(name, use) for name, use in EXTRAS.items()]


def _extra(name: str, use: str) -> Check:
    missing = [package for package in packages_of(name) if version_of(package) is None]
    if not missing:
        return Check(f"[{name}]", "ok", "installed")
    return Check(f"[{name}]", "note", f"missing {', '.join(missing)}", f"For {use}: {install_command(name)}")


def _folders() -> list[Check]:
    shared = Path("/dev/shm")
    if not shared.is_dir():
        return []
    free = shutil.disk_usage(shared).free
    text = f"{free / 2**20:,.0f} MB free in /dev/shm, through which samplers read weights"
    if free < 64 * 2**20:
        return [Check("shared memory", "note", text, "Start the container with --shm-size=1g; small models need less.")]
    return [Check("shared memory", "ok", text)]


def _processor() -> list[Check]:
    if importlib.util.find_spec("torch") is None:
        return []
    ended = bf16_product()
    if ended == 0:
        return [Check("bf16 on the CPU", "ok", "a 128 × 128 matrix product is correct")]
    name = signal.Signals(-ended).name if ended < 0 else f"exit code {ended}"
    if bf16_product(SAFE_ISA) == 0:
        remedy = (
            f"The processor reports instructions that it does not have. Set ONEDNN_MAX_CPU_ISA={SAFE_ISA}, which works."
        )
    else:
        remedy = "Stay with fp32 here (model.dtype and rollout.precision), or try another build of torch."
    return [Check("bf16 on the CPU", "broken", f"a 128 × 128 matrix product ended with {name}", remedy)]


def _self_test() -> list[Check]:
    trials: dict[str, Callable[[], None]] = {"correction": _corrects, "loss": _descends, "translator": _translates}
    return [_try(f"self-test: {name}", trial) for name, trial in trials.items()]


def _try(name: str, trial: Callable[[], None], sound: str = "matches the value worked out by hand") -> Check:
    try:
        trial()
    except Exception as error:  # whatever goes wrong is the finding
        remedy = "Please report it with the output of this command."
        return Check(name, "broken", f"{type(error).__name__}: {error}".splitlines()[0].rstrip("."), remedy)
    return Check(name, "ok", sound)


def _close(found: float, wanted: float) -> None:
    if abs(found - wanted) > 1e-6 * max(1.0, abs(wanted)):
        raise ArithmeticError(f"{wanted:g} was worked out by hand, got {found:g}")


def _corrects() -> None:
    """Ratios e⁰ = 1 and e¹ under a cap of 2 weigh 1 and 2."""
    import torch

    from trimtab import correct, preset

    behavior, proximal = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.0, -1.0]])
    out = correct(preset("token-tis", upper=2.0), behavior=behavior, proximal=proximal, mask=torch.ones(1, 2).bool())
    _close(float(out.weight[0, 0]), 1.0)
    _close(float(out.weight[0, 1]), 2.0)


def _descends() -> None:
    """On-policy the clipped loss is −A, and its slope in each of two log-probs −A/2."""
    import torch

    from trimtab import Clip, policy_loss

    current = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    advantages, mask = torch.tensor([0.5]), torch.ones(1, 2).bool()
    found = policy_loss(Clip(), current=current, proximal=current.detach(), mask=mask, advantages=advantages)
    found.loss.backward()
    _close(float(found.loss.detach()), -0.5)
    assert current.grad is not None
    _close(float(current.grad[0, 0]), -0.25)


def _translates() -> None:
    """verl's token-level cap is ours."""
    from trimtab.dialects import read

    found = read("verl", {"rollout_is": "token", "rollout_is_threshold": 2.0}).correction
    weight = None if found is None else found.weight
    if weight is None or (weight.level, weight.upper) != ("token", 2.0):
        raise ArithmeticError(f"verl's rollout_is_threshold 2.0 was read as {weight}")
