"""What a correction saw and did, as 0-d tensors by name. Worked out section by section, only when asked for.

Only valid units count: sequences without tokens never do, tokens without log-probs never do. Log-ratios are held within
±20 before they are exponentiated here, so that one token cannot make a mean infinite. docs/metrics.md lists every name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from trimtab.config.algebra import Gate
from trimtab.core import measures
from trimtab.core.measures import Section
from trimtab.core.trace import Trace


def _nothing() -> dict[str, Tensor]:
    return {}


def _no_sections() -> dict[str, Section]:
    return {}


@dataclass(frozen=True, eq=False)
class Metrics(Mapping[str, Tensor]):
    """A read-only dict of 0-d tensors; a value is worked out, with its section, when it is first read."""

    trace: Trace
    _found: dict[str, Tensor] = field(default_factory=_nothing, repr=False)
    _sections: dict[str, Section] = field(default_factory=_no_sections, repr=False)

    @property
    def _table(self) -> dict[str, Section]:
        if not self._sections:
            self._sections.update(_sections(self.trace))
        return self._sections

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._found:
            with torch.no_grad():
                self._found.update(self._table[name](self.trace))
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def gate_name(index: int, gate: Gate) -> str:
    """How a gate is called in metric names: its place, metric and level."""
    return f"gate/{index}-{gate.metric}-{gate.level}"


def _sections(trace: Trace) -> dict[str, Section]:
    """Each metric's name and the section it is worked out in; known from the rule alone."""
    table: dict[str, Section] = {}

    def add(names: str, section: Section, prefix: str = "") -> None:
        table.update(dict.fromkeys([f"{prefix}{name}" for name in names.split()], section))

    add("tokens sequences missing_fraction kept_fraction kept_sequence_fraction all_rejected", measures.counts)
    add("kl kl_reverse k3 chi2_token abs_log_r abs_log_r_max", measures.drift, "drift/")
    add("k3_reverse", measures.reverse, "drift/")
    add("prob_diff prob_diff_max", measures.probabilities, "drift/")
    add("drift/chi2_sequence perplexity/behavior perplexity/target perplexity/ratio", measures.perplexity)
    add("log_diff log_diff_abs log_diff_max log_diff_min", measures.perplexity, "perplexity/")
    add("mean std min max", measures.ratio, "ratio/")
    add("p01 p50 p99", measures.ratio_quantiles, "ratio/")
    add("abs_log_r_p50", measures.ratio_quantiles, "drift/")
    add("mean std min max ess", measures.weight, "weight/")
    if trace.weighing is not None:
        add("touched_high touched_low", measures.touched, "weight/")
        add("p01 p50 p99", measures.weight_quantiles, "weight/")
    for index, gate in enumerate(trace.rule.gates):
        name = f"{gate_name(index, gate)}/"
        add("mean std min max", measures.gate_statistic(index, name), name)
        add("p01 p50 p99", measures.gate_quantiles(index, name), name)
        add("rejected_tokens rejected_sequences high_tokens low_tokens", measures.gate_verdict(index, name), name)
    if trace.batch.advantages is not None:
        add("missing_fraction", measures.unvalued, "advantage/")
        add("kept_given_positive kept_given_negative net_advantage mean_advantage", measures.selection, "selection/")
    return table
