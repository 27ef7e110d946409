"""TRL's and ms-swift's scalars."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from trimtab.config.losses import Cispo, Clip, Gspo, Luspo, Vespo
from trimtab.diagnostics.logged.drift import DRIFT, LIMIT, ess
from trimtab.diagnostics.logged.seen import Descended, Seen, Table, filled, greatest, least, mean
from trimtab.losses.terms import above, below
from trimtab.losses.vespo import phi


def _weighed(x: Seen) -> tuple[Tensor, Tensor]:
    """The weights, over tokens or over all rows; they are logged before the sequence mask is known."""
    assert x.weighed is not None
    return x.unit_weight, x.valid if x.weighed.units is None else x.every


TRL: Table[Seen] = {
    "sampling_logp_difference/mean": lambda x: x.mean(x.log_r.abs()),
    "sampling_logp_difference/max": lambda x: greatest(x.log_r.abs(), x.valid),
    "importance_sampling_ratio/min": lambda x: least(*_weighed(x)),
    "importance_sampling_ratio/mean": lambda x: mean(*_weighed(x)),
    "importance_sampling_ratio/max": lambda x: greatest(*_weighed(x)),
}


def trl_correction(x: Seen) -> dict[str, Tensor]:
    """`sampling/…`, where a weight is switched on."""
    return {} if x.weighed is None else filled(TRL, x, "sampling/")


def _threshold(x: Seen) -> float:
    assert x.rule.weight is not None
    found = [x.rule.weight.upper, *(gate.upper for gate in x.rule.gates if gate.metric == "ratio")]
    return next(upper for upper in found if upper is not None)


def _clipped(x: Seen) -> Tensor:
    """Tokens beyond the threshold, or rows (all of them) whose geometric mean is."""
    assert x.weighed is not None
    by_row = x.weighed.units is not None or any(gate.metric == "ratio" for gate in x.rule.gates)
    if by_row:
        return above(x.by_row(x.held(LIMIT)).exp(), _threshold(x)).mean()
    return x.mean(above(x.raw, _threshold(x)))


SWIFT: Table[Seen] = {
    **DRIFT,
    "k3_kl": lambda x: x.mean((x.held(LIMIT).expm1() - x.held(LIMIT)).clamp(-10, 10)),
    "chi2_seq": lambda x: (2 * x.by_row(x.log_r).clamp(-LIMIT, LIMIT)).expm1().mean(),
}
"""Their χ² of a sequence squares its geometric mean."""

SWIFT_WEIGHT: Table[Seen] = {
    "is_weight_mean": lambda x: x.mean(x.weight),
    "ess": lambda x: ess(x.weight.clamp(1 / _threshold(x), _threshold(x)), x.valid),
    "clipped_frac": _clipped,
}


def swift_correction(x: Seen) -> dict[str, Tensor]:
    """`rollout_correction/…`."""
    weighs = x.weighed is not None
    return filled({**SWIFT, **SWIFT_WEIGHT} if weighs else SWIFT, x, "rollout_correction/")


Clipping = Clip | Gspo | Luspo


def _low(x: Descended) -> Tensor:
    assert isinstance(x.loss, Clipping)
    return below(x.rho, 1.0 - x.loss.low) * below(x.terms.advantages, 0.0)


def _high(x: Descended) -> Tensor:
    assert isinstance(x.loss, Clipping)
    cap = None if isinstance(x.loss, Luspo) else x.loss.ratio_cap
    rho = x.rho if cap is None else x.rho.clamp(max=cap)
    return above(rho, 1.0 + x.loss.high) * above(x.terms.advantages, 0.0)


def _region(x: Descended) -> Tensor:
    return torch.maximum(_low(x), _high(x))


def _cispo(x: Descended) -> Tensor:
    assert isinstance(x.loss, Cispo)
    beyond = above(x.rho, torch.inf if x.loss.upper is None else x.loss.upper)
    return beyond * above(x.terms.advantages, 0.0)


def _trl_mean(x: Descended, value: Tensor) -> Tensor:
    """Over tokens; where a sequence has one ratio, over all rows."""
    return mean(value, x.valid) if isinstance(x.loss, Clip | Cispo) else x.by_row(value, x.valid).mean()


TRL_CLIP: Table[Descended] = {
    "clip_ratio/low_mean": lambda x: _trl_mean(x, _low(x)),
    "clip_ratio/high_mean": lambda x: _trl_mean(x, _high(x)),
    "clip_ratio/region_mean": lambda x: _trl_mean(x, _region(x)),
    "clip_ratio/low_min": lambda x: least(x.by_row(_low(x), x.valid), x.terms.batch.lengths),
    "clip_ratio/high_max": lambda x: greatest(x.by_row(_high(x), x.valid), x.terms.batch.lengths),
}


def _phi(x: Descended, loss: Vespo) -> Tensor:
    """Over all rows, whether the sequence mask drops them or not; where there are no tokens φ is 1."""
    seen = x.seen
    weight = x.valid
    if seen is not None and seen.weighed is not None:
        weight = seen.laid(seen.unit_weight, seen.weighed.units)
    rows = x.by_row(phi(loss, replace(x.terms, weight=weight)), x.valid)
    return torch.where(x.terms.batch.lengths > 0, rows, 1.0).mean()


def trl_loss(x: Descended) -> dict[str, Tensor]:
    """Clipping by the sign of the advantage; the sequence mask does not change what is counted."""
    found = {"kl": x.metrics["policy/kl"]} if "policy/kl" in x.metrics else {}
    if isinstance(x.loss, Clipping):
        return found | filled(TRL_CLIP, x)
    if isinstance(x.loss, Cispo):
        return found | {"cispo_clip_ratio": _trl_mean(x, _cispo(x))}
    if isinstance(x.loss, Vespo):
        return found | {"vespo/phi_seq_mean": _phi(x, x.loss)}
    return found


SWIFT_CLIP: Table[Descended] = {
    "clip_ratio/low_mean": lambda x: mean(_low(x), x.kept),
    "clip_ratio/low_min": lambda x: mean(_low(x), x.kept),
    "clip_ratio/high_mean": lambda x: mean(_high(x), x.kept),
    "clip_ratio/high_max": lambda x: mean(_high(x), x.kept),
    "clip_ratio/region_mean": lambda x: mean(_region(x), x.kept),
}
"""Their least and greatest are over processes."""


def swift_loss(x: Descended) -> dict[str, Tensor]:
    """Clipping over the tokens that the sequence mask left."""
    found = {"kl": x.metrics["policy/kl"]} if "policy/kl" in x.metrics else {}
    if isinstance(x.loss, Clipping):
        return found | filled(SWIFT_CLIP, x)
    return found | {"cispo_clip_ratio": mean(_cispo(x), x.kept)} if isinstance(x.loss, Cispo) else found
