"""The metrics of a correction from the sums of its pass: the names and meanings of `core/measures.py`, in plain numbers.

`sums` of tokens: 0 masked, 1 valid, 2 Σℓ, 3 Σ(r−1), 4 Σ(r−1)², 5 Σk3, 6 Σk3 reversed, 7 Σ(r−1)ℓ, 8 Σ|ℓ|, 9 Σ|p−q|, 10 log-probs
above 0, 11 kept, 12 Σw, 13 Σw², 14 weighed, 15 beyond the upper bound, 16 beyond the lower one; of rows: 17 with tokens,
18 with kept tokens, 19–24 perplexities and chi². `tops`: 0 |ℓ|, 1 ℓ, 2 −ℓ, 3 |p−q|, 4 w, 5 −w, 6 log-probs, or 0 where none is
above, 8 and 9 the log difference of perplexities. Of each gate: 0 tokens, 1 lost, 2 high, 3 low,
4 units, 5 Σ, 6 Σ², 7 rows, 8 rows lost whole; and two tops.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.fast.decide import RowPass, flat, flat_marks
from trimtab.core.observe import RAW, gate_name
from trimtab.core.once import of_identity

_COUNTS = "tokens sequences missing_fraction kept_fraction kept_sequence_fraction all_rejected positive_fraction partial_fraction"
_DRIFT = "kl kl_reverse k3 k3_reverse chi2_token abs_log_r abs_log_r_max prob_diff prob_diff_max"
_PERPLEXITIES = "behavior target ratio log_diff log_diff_abs log_diff_max log_diff_min"
_SUMMARY = "mean std min max"
_SIDES = "rejected_tokens rejected_sequences high_tokens low_tokens"


@of_identity
def moment_names(rule: Correction) -> tuple[str, ...]:
    """The metrics that the sums of a pass say, in the order in which `moments.write_moments` writes them."""
    groups = [("", _COUNTS), ("drift/", _DRIFT), ("ratio/", _SUMMARY), ("perplexity/", _PERPLEXITIES)]
    groups += [("drift/", "chi2_sequence"), ("weight/", f"{_SUMMARY} ess")]
    groups += [("weight/", "touched_high touched_low")] if rule.weighs else []
    groups += [(f"{gate_name(index, gate)}/", f"{_SUMMARY} {_SIDES}") for index, gate in enumerate(rule.gates)]
    return tuple(f"{prefix}{name}" for prefix, names in groups for name in names.split())


def moment_figures(rule: Correction, found: RowPass, partials: float) -> dict[str, float]:
    """Every metric but quantiles and raw weights. `partials`: tokens of a mask that is neither 0 nor 1."""
    import numpy as np

    from trimtab.core.fast import moments

    names = moment_names(rule)
    values = np.empty(len(names))
    moments.write_moments(found.sums, found.tops, partials, rule.weighs, len(rule.gates), values)
    return dict(zip(names, values.tolist(), strict=True))


RAW_NAMES = tuple(f"weight/{name}" for name in RAW.split())


def raw_weight_figures(found: RowPass) -> dict[str, float]:
    """The weight before its bounds, of the kept tokens."""
    import numpy as np

    from trimtab.core.fast import moments

    values = np.empty(len(RAW_NAMES))
    moments.write_raw_weights(found.sums, _raw_sums(found), values)
    return dict(zip(RAW_NAMES, values.tolist(), strict=True))


def _raw_sums(found: RowPass) -> Any:
    """Σw, Σw² and the logarithms of the least and the greatest w. Where all are kept, each at its own ratio, the moments say it."""
    import numpy as np

    from trimtab.core.fast import weights

    (level, _, _, limits), (*_, limit) = found.program.weight
    sums, tops = found.sums, found.tops
    square = sums[1] + 2.0 * sums[3] + sums[4]
    if level == 1 and not limits and sums[11] == sums[1] and square > weights.SMALL * sums[1]:  # each weight is a ratio
        return np.array([sums[1] + sums[3], square, -tops[2], tops[1]])
    out = np.array([0.0, 0.0, np.inf, -np.inf])
    if level != 1:
        weights.raw_row_weights(found.rows, out)
        return out
    tokens = flat(found.log_r), flat_marks(found.kept)
    if found.by_rows:  # where no token reaches a limit
        weights.raw_weights_by_rows(*tokens, found.offsets, found.rows, out)
    else:
        weights.raw_token_weights(*tokens, np.float32(limit if limits else np.inf), out)
    return out


def as_tensors(values: dict[str, float]) -> dict[str, Tensor]:
    """Numbers as 0-d float32 tensors, each within what that type holds."""
    import numpy as np

    most = torch.finfo(torch.float32).max
    held = np.fromiter(values.values(), np.float64, len(values)).clip(-most, most)
    return dict(zip(values, torch.from_numpy(held.astype(np.float32)).unbind(), strict=True))
