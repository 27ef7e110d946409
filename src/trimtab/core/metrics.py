"""What a correction saw and did, as 0-d tensors by name. Worked out section by section, only when asked for.

Only valid units count: sequences without tokens never do, tokens without log-probs never do. Log-ratios are held within
±20 before they are exponentiated here, so that one token cannot make a mean infinite. docs/metrics.md lists every name.

Every trainer gathers the metrics of its micro-batches and ranks in its own way, and an average of maxima is none: `combination` says how.
Sums, least and greatest are exact for any split. A mean is that of the parts, each with one vote, as trainers take it: exact where
the parts hold as many tokens (or sequences) each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from trimtab.config.algebra import Correction, Gate
from trimtab.core import gate_measures, measures
from trimtab.core.cached import cache_by_identity, cached
from trimtab.core.decisions import Decisions
from trimtab.core.measures import Measure
from trimtab.errors import UnknownMetricError, nearest

_LOG = logging.getLogger("trimtab.rejected")
Known = Callable[[str], dict[str, Tensor] | None]
"""Sections that were worked out, or can be, without the decisions of the plain form; None: this one cannot."""


class LazyMetrics(Mapping[str, Tensor]):
    """A read-only dict of 0-d tensors; a value is worked out, with the others of its section, when it is first read."""

    def __init__(self, sections: Mapping[str, Callable[..., dict[str, Tensor]]]) -> None:
        self.sections = sections
        self._found: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        known = self._found.get(name)
        if known is not None:
            return known
        if name not in self.sections:
            raise unknown_metric(name, self)
        self._found.update(self.section_of(name))
        return self._found[name]

    def section_of(self, name: str) -> dict[str, Tensor]:
        """A metric worked out, with the others of its section."""
        with torch.no_grad():
            return self.sections[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self.sections)

    def __len__(self) -> int:
        return len(self.sections)

    def __contains__(self, name: object) -> bool:
        return name in self.sections

    def __repr__(self) -> str:
        """The names by family. Values are left out: reading one may wait for a device."""
        families: dict[str, list[str]] = {}
        for name in self:
            family, _, own = name.rpartition("/")
            families.setdefault(family, []).append(own)
        lines = [f"  {f'{family}/: ' if family else ''}{', '.join(names)}" for family, names in families.items()]
        return "\n".join(
            [f"{len(self)} metrics, each worked out when it is read: metrics[{next(iter(self))!r}].item()", *lines]
        )


def unknown_metric(name: object, known: Iterable[str]) -> UnknownMetricError:
    """The error that names the nearest metric."""
    return UnknownMetricError(f"There is no metric {name!r} here. {nearest(name, known)}")


class Metrics(LazyMetrics):
    """The metrics of one correction, from the decisions of the plain form; with `known`, those are made only for what is left."""

    def __init__(
        self,
        rule: Correction,
        decide: Callable[[], Decisions],
        *,
        valued: bool,
        aged: bool = False,
        known: Known | None = None,
    ) -> None:
        super().__init__(_measures(rule) | (_VALUED if valued else {}) | (_AGED if aged else {}))
        self._decide, self._known = decide, known

    @cached
    def decisions(self) -> Decisions:
        """Everything a correction worked out on its way."""
        return self._decide()

    def section_of(self, name: str) -> dict[str, Tensor]:
        """A metric worked out, with the others of its section."""
        measure = self.sections[name]
        found = None if self._known is None else self._known(name)
        if found is not None:
            return found
        with torch.no_grad():
            return measure(self.decisions)


_SAID: set[Correction] = set()
"""The rules of which it was said that they rejected a whole batch."""


@contextmanager
def rules_on_trial() -> Generator[None]:
    """While rules are only tried, in order to compare them, nothing is said of those that reject everything."""
    level = _LOG.level
    _LOG.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _LOG.setLevel(level)


def say_all_rejected(rule: Correction, metrics: Metrics) -> None:
    """Log, once per rule, that a batch was rejected whole, and which bounds would have kept most of it.

    A loss that is 0 raises nothing and stops a training without a word. It is asked of data on the host only; elsewhere nothing waits.
    """
    if rule in _SAID or not _LOG.isEnabledFor(logging.WARNING):
        return
    _SAID.add(rule)
    with torch.no_grad():
        advice = "; ".join(gate_measures.bounds_that_keep(metrics.decisions, 0.9))
    _LOG.warning(
        "trimtab: the correction rejected every token of this batch, so its loss and gradient are 0. %s. "
        "Said once; the metric all_rejected counts on.",
        advice or "No single gate did: look at gate/…/rejected_tokens",
    )


class WeightMetrics(LazyMetrics):
    """What can be said where only weights and masks are known: counts, and the weight."""

    def __init__(self, decisions: Decisions) -> None:
        names = {
            "tokens sequences missing_fraction kept_fraction kept_sequence_fraction all_rejected": measures.counts,
            "weight/mean weight/std weight/min weight/max weight/ess": measures.weight,
            "weight/p01 weight/p50 weight/p99": measures.weight_quantiles,
        }
        super().__init__({name: partial(how, decisions) for group, how in names.items() for name in group.split()})


RAW = "raw_mean raw_std raw_min raw_max raw_ess"
"""What is said of a weight before its bounds."""


def gate_name(index: int, gate: Gate) -> str:
    """How a gate is called in metric names: its place, metric and level."""
    return f"gate/{index}-{gate.metric}-{gate.level}"


@cache_by_identity
def _measures(rule: Correction) -> dict[str, Measure]:
    """Each metric's name and the section it is worked out in; known from the rule alone."""
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
        add(RAW, measures.raw_weight, "weight/")
        add("p01 p50 p99", measures.weight_quantiles, "weight/")
    if rule.weight is not None and rule.weight.bounds is not None:
        add("upper", measures.found_weight_bound, "weight/")
    for index, gate in enumerate(rule.gates):
        name = f"{gate_name(index, gate)}/"
        add("mean std min max", gate_measures.gate_statistic(index, name), name)
        add("p01 p50 p99", gate_measures.gate_quantiles(index, name), name)
        add(
            "rejected_tokens rejected_sequences high_tokens low_tokens",
            gate_measures.gate_rejections(index, name),
            name,
        )
        if gate.bounds is not None:
            add("upper", gate_measures.found_gate_bound(index, name), name)
    return table


_VALUED: dict[str, Measure] = {
    "advantage/missing_fraction": measures.advantage_gaps,
    "selection/kept_given_positive": measures.selection,
    "selection/kept_given_negative": measures.selection,
    "selection/net_advantage": measures.selection,
    "selection/mean_advantage": measures.selection,
}
"""What is known where there are advantages."""
_AGED: dict[str, Measure] = {f"weight/ess_age/{name}": measures.ess_by_age for name in measures.AGES}
"""What is known where there are ages."""


Combination = Literal["mean", "max", "min", "sum"]

SUMS = frozenset(
    [
        "tokens",
        "sequences",
        "policy/loss",
        "rows",
        "nonvoting_rows",
        "failed_rows",
        "truncated_rows",
        "groups",
        "singleton_groups",
        "zero_variance_groups",
        "silent_groups",
    ]
)
"""Counts, and the loss: each micro-batch holds its share of it."""
ENDS: dict[str, Combination] = {"max": "max", "min": "min", "all_rejected": "min"}
"""By the last word of a name: `weight/max`, `policy/ratio_min`; a step is all rejected where every part is."""


def combination(name: str) -> Combination:
    """How the metric of that name is combined over parts of a step."""
    if name in SUMS:
        return "sum"
    word = name.rpartition("/")[2]
    return ENDS.get(word) or ENDS.get(word.rpartition("_")[2], "mean")
