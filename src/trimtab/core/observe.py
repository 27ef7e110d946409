"""What a correction saw and did, as 0-d tensors by name. Worked out section by section, only when asked for.

Only valid units count: sequences without tokens never do, tokens without log-probs never do. Log-ratios are held within
±20 before they are exponentiated here, so that one token cannot make a mean infinite. docs/metrics.md lists every name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor

from trimtab.config.algebra import Correction, Gate
from trimtab.core import measures
from trimtab.core.decisions import Decisions
from trimtab.core.measures import Measure
from trimtab.core.once import LazyMetrics, once

Section = Callable[[], dict[str, Tensor]]


class Metrics(LazyMetrics):
    """The metrics of one correction, from the decisions of the plain form.

    `known` are sections that were worked out, or can be, without them; then those are made only for what is left.
    """

    def __init__(
        self,
        rule: Correction,
        decide: Callable[[], Decisions],
        *,
        valued: bool,
        known: Mapping[str, Section] | None = None,
    ) -> None:
        plain = {name: partial(self._measure, measure) for name, measure in _measures(rule, valued=valued).items()}
        super().__init__(plain | dict(known or {}))
        self._decide = decide

    @once
    def decisions(self) -> Decisions:
        """Everything a correction worked out on its way."""
        return self._decide()

    def _measure(self, measure: Measure) -> dict[str, Tensor]:
        return measure(self.decisions)


class WeightMetrics(LazyMetrics):
    """What can be said where only weights and masks are known: counts, and the weight."""

    def __init__(self, decisions: Decisions) -> None:
        names = {
            "tokens sequences missing_fraction kept_fraction kept_sequence_fraction all_rejected": measures.counts,
            "weight/mean weight/std weight/min weight/max weight/ess": measures.weight,
            "weight/p01 weight/p50 weight/p99": measures.weight_quantiles,
        }
        super().__init__({name: partial(how, decisions) for group, how in names.items() for name in group.split()})


def gate_name(index: int, gate: Gate) -> str:
    """How a gate is called in metric names: its place, metric and level."""
    return f"gate/{index}-{gate.metric}-{gate.level}"


def _measures(rule: Correction, *, valued: bool) -> dict[str, Measure]:
    """Each metric's name and the section it is worked out in; known from the rule alone. `valued`: there are advantages."""
    table: dict[str, Measure] = {}

    def add(names: str, section: Measure, prefix: str = "") -> None:
        table.update(dict.fromkeys([f"{prefix}{name}" for name in names.split()], section))

    add("tokens sequences missing_fraction kept_fraction kept_sequence_fraction all_rejected", measures.counts)
    add("positive_fraction partial_fraction", measures.doubtful)
    add("kl kl_reverse k3 chi2_token abs_log_r abs_log_r_max", measures.drift, "drift/")
    add("k3_reverse", measures.reverse, "drift/")
    add("prob_diff prob_diff_max", measures.probabilities, "drift/")
    add("drift/chi2_sequence perplexity/behavior perplexity/target perplexity/ratio", measures.perplexity)
    add("log_diff log_diff_abs log_diff_max log_diff_min", measures.perplexity, "perplexity/")
    add("mean std min max", measures.raw_ratio, "ratio/")
    add("p01 p50 p99", measures.ratio_quantiles, "ratio/")
    add("abs_log_r_p50", measures.ratio_quantiles, "drift/")
    add("mean std min max ess", measures.weight, "weight/")
    if rule.weighs:
        add("touched_high touched_low", measures.beyond_bounds, "weight/")
        add("p01 p50 p99", measures.weight_quantiles, "weight/")
    for index, gate in enumerate(rule.gates):
        name = f"{gate_name(index, gate)}/"
        add("mean std min max", measures.gate_statistic(index, name), name)
        add("p01 p50 p99", measures.gate_quantiles(index, name), name)
        add("rejected_tokens rejected_sequences high_tokens low_tokens", measures.gate_rejections(index, name), name)
    if valued:
        add("missing_fraction", measures.advantage_gaps, "advantage/")
        add("kept_given_positive kept_given_negative net_advantage mean_advantage", measures.selection, "selection/")
    return table
