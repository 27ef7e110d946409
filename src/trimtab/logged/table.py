"""`logged`: from our metrics to a framework's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.core.metrics import Metrics
from trimtab.dialects.reading import Reading
from trimtab.errors import InputError
from trimtab.logged import (
    areal,
    miles,
    nemo_rl,
    open_instruct,
    openrlhf,
    prime_rl,
    roll,
    skyrl,
    slime,
    swift,
    tinker,
    trl,
    tunix,
    verl,
)
from trimtab.logged.views import CorrectionView, LossView
from trimtab.losses.metrics import PolicyMetrics


@dataclass(frozen=True)
class Scalars:
    """What a framework logs: from the view of a correction, and from that of a loss where it logs any."""

    correction: Callable[[CorrectionView], dict[str, Tensor]]
    loss: Callable[[LossView], dict[str, Tensor]] = lambda _: {}


SCALARS: dict[str, Scalars] = {
    "verl": Scalars(verl.correction, verl.loss),
    "areal": Scalars(areal.correction, areal.loss),
    "skyrl": Scalars(skyrl.correction, skyrl.loss),
    "trl": Scalars(trl.correction, trl.loss),
    "ms-swift": Scalars(swift.correction, swift.loss),
    "openrlhf": Scalars(openrlhf.correction, openrlhf.loss),
    "slime": Scalars(slime.correction),
    "nemo-rl": Scalars(nemo_rl.correction, nemo_rl.loss),
    "roll": Scalars(roll.correction),
    "open-instruct": Scalars(open_instruct.correction),
    "prime-rl": Scalars(prime_rl.correction),
    "miles": Scalars(miles.correction, miles.loss),
    "tinker": Scalars(tinker.correction),
    "tunix": Scalars(tunix.correction, tunix.loss),
}
"""Every framework whose scalars are known, by name: one row, one file beside this one."""


@torch.no_grad()
def logged(reading: Reading, metrics: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the framework would log, from the metrics of `correct` or of `policy_loss` on the same rows.

    As the frameworks compute them: of the rows at hand, on one rank. Nothing for a batch without tokens.
    """
    if isinstance(metrics, Metrics):
        has_tokens = metrics.decisions.batch.valid.numel()
        return (
            SCALARS[reading.framework].correction(CorrectionView(metrics.decisions, reading.logged_kl))
            if has_tokens
            else {}
        )
    if not isinstance(metrics, PolicyMetrics):
        raise InputError(
            f"logged needs the metrics of correct or policy_loss, got {type(metrics).__name__}. Pass them as they came."
        )
    if not metrics.terms.batch.valid.numel():
        return {}
    seen = (
        CorrectionView(metrics.correction.decisions, reading.logged_kl)
        if isinstance(metrics.correction, Metrics)
        else None
    )
    found = {} if seen is None else SCALARS[reading.framework].correction(seen)
    if reading.loss is None or reading.framework not in SCALARS:
        return found
    return found | SCALARS[reading.framework].loss(
        LossView(reading.loss, metrics.terms, metrics.surrogate, metrics, seen)
    )
