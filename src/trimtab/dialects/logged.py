"""The scalars frameworks log, by the name ours have: for dashboards that should not notice who computes them.

Only what is the same number is listed. What a framework averages over padding, over rejected tokens, or over rows without
tokens in its own way is left out, except where the rows without tokens add a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.config.algebra import Correction, Gate
from trimtab.dialects.reading import Reading


@dataclass(frozen=True)
class Same:
    """A metric of ours that a framework logs too."""

    ours: str
    empty: float | None = None
    """Where the framework averages over all rows: what a row without tokens adds. None: it averages as ours does."""
    complement: bool = False
    """One minus ours."""

    def value(self, metric: Callable[[str], Any], rows: int) -> Any:
        """The framework's number."""
        found = metric(self.ours)
        if self.complement:
            found = 1 - found
        if self.empty is None:
            return found
        filled = metric("sequences")
        return (found * filled + self.empty * (rows - filled)) / rows


Table = dict[str, Same]


def logged(reading: Reading, metrics: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """The scalars the framework would log for this correction, from `correct(...).metrics` of a batch of `rows` rows."""
    rule = reading.correction
    if rule is None or reading.framework not in TABLES:
        return {}
    return {name: same.value(metrics.__getitem__, rows) for name, same in TABLES[reading.framework](rule).items()}


def _diagnostics(prefix: str) -> Table:
    """Perplexities and drift, per row over all rows."""
    return {
        f"{prefix}/kl": Same("drift/kl"),
        f"{prefix}/chi2_token": Same("drift/chi2_token"),
        f"{prefix}/training_ppl": Same("perplexity/target", empty=1.0),
        f"{prefix}/rollout_ppl": Same("perplexity/behavior", empty=1.0),
        f"{prefix}/ppl_ratio": Same("perplexity/ratio", empty=1.0),
        f"{prefix}/log_ppl_diff": Same("perplexity/log_diff", empty=0.0),
        f"{prefix}/log_ppl_abs_diff": Same("perplexity/log_diff_abs", empty=0.0),
    }


def _name(place: int, gate: Gate) -> str:
    return f"gate/{place}-{gate.metric}-{gate.level}"


def _verl(rule: Correction) -> Table:
    from trimtab.dialects.verl import REJECTIONS

    prefix = "rollout_corr"
    found = _diagnostics(prefix) | {f"{prefix}/chi2_seq": Same("drift/chi2_sequence", empty=0.0)}
    if rule.gates:
        found[f"{prefix}/rollout_rs_masked_fraction"] = Same("kept_fraction", complement=True)
    elif rule.weight is not None and rule.weight.level == "token" and not rule.normalize:
        found[f"{prefix}/rollout_is_mean"] = Same("weight/mean")
        found |= {f"{prefix}/rollout_is_{side}": Same(f"weight/{side}") for side in ("min", "max")}
    for place, gate in enumerate(rule.gates):
        shape = {"metric": gate.metric, "level": gate.level} | ({"agg": gate.agg} if gate.agg else {})
        option = next(
            (name for name, row in REJECTIONS.items() if {key: row[key] for key in row if key != "direction"} == shape),
            None,
        )
        if option is None:
            continue
        ours, theirs = _name(place, gate), f"{prefix}/rollout_rs_{option}"
        found[f"{theirs}_masked_fraction"] = Same(f"{ours}/rejected_tokens")
        found |= {f"{theirs}_{side}": Same(f"{ours}/{side}") for side in ("min", "max")}
        if gate.level == "token":
            found[f"{theirs}_mean"] = Same(f"{ours}/mean")
            found[f"{theirs}_fraction_high"] = Same(f"{ours}/high_tokens")
        else:
            found[f"{theirs}_seq_masked_fraction"] = Same(f"{ours}/rejected_sequences")
    return found


def _skyrl(rule: Correction) -> Table:
    found = {"is_ratio_mean": Same("ratio/mean")}
    for place, gate in enumerate(rule.gates):
        ours = _name(place, gate)
        if gate.level == "token":
            found["token_mask_ratio"] = Same(f"{ours}/rejected_tokens")
    return found


def _swift(rule: Correction) -> Table:
    found = _diagnostics("rollout_correction")
    if rule.weight is not None and rule.weight.level != "one":
        found["rollout_correction/is_weight_mean"] = Same("weight/mean")
    return found


def _trl(rule: Correction) -> Table:
    found = {
        "sampling/sampling_logp_difference/mean": Same("drift/abs_log_r"),
        "sampling/sampling_logp_difference/max": Same("drift/abs_log_r_max"),
    }
    if rule.weight is not None and rule.weight.level != "one":
        found |= {f"sampling/importance_sampling_ratio/{side}": Same(f"weight/{side}") for side in ("min", "max")}
    return found


TABLES: dict[str, Callable[[Correction], Table]] = {
    "verl": _verl,
    "skyrl": _skyrl,
    "ms-swift": _swift,
    "trl": _trl,
    "openrlhf": lambda _: {"vllm_kl": Same("drift/kl")},
    "roll": lambda rule: {"actor/train_infer_final_mask_mean": Same("kept_fraction")} if rule.gates else {},
    "open-instruct": lambda _: {"val/rho_weight": Same("weight/mean")},
}
"""Framework → its names for a correction."""
