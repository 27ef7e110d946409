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

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.core import gate_measures, measures
from trimtab.core.cached import cache_by_identity, cached
from trimtab.core.decisions import Decisions
from trimtab.core.measures import Measure
from trimtab.core.sums import GAPS, OF_GATE, POINTS, SELECTION
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
            family, _, short = name.rpartition("/")
            families.setdefault(family, []).append(short)
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
        super().__init__(measures_of(rule) | (_VALUED if valued else {}) | (_AGED if aged else {}))
        self._decide, self._known = decide, known

    @cached
    def decisions(self) -> Decisions:
        """Everything a correction worked out on its way."""
        return self._decide()

    def section_of(self, name: str) -> dict[str, Tensor]:
        """A metric worked out, with the others of its section."""
        measure = self.sections[name]
        known = None if self._known is None else self._known(name)
        if known is not None:
            return known
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
        "Logged once per rule; the metric all_rejected keeps counting.",
        advice or "No single gate did: see gate/…/rejected_tokens",
    )


_WEIGHTED = Correction(weight=Weight(level="token"))


class WeightMetrics(LazyMetrics):
    """What can be said where only weights and masks are known: counts, and the weight."""

    def __init__(self, decisions: Decisions) -> None:
        known = (measures.counts, measures.weight, measures.weight_quantiles)
        names = measures_of(_WEIGHTED).items()
        super().__init__({name: partial(measure, decisions) for name, measure in names if measure in known})


def gate_name(index: int, gate: Gate) -> str:
    """How a gate is called in metric names: its place, metric and level."""
    return f"gate/{index}-{gate.metric}-{gate.level}"


SUMMARY = "mean std min max"
QUANTILES = " ".join(POINTS)


@cache_by_identity
def measures_of(rule: Correction) -> dict[str, Measure]:
    """Each metric's name and what works it out, with the others of its section; known from the rule alone."""
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
    add(SUMMARY, measures.raw_ratio, "ratio/")
    add(QUANTILES, measures.ratio_quantiles, "ratio/")
    add("abs_log_r_p50", measures.ratio_quantiles, "drift/")
    add(f"{SUMMARY} ess", measures.weight, "weight/")
    if rule.weighs:
        add("touched_high touched_low", measures.beyond_bounds, "weight/")
        add(f"{SUMMARY} ess", measures.raw_weight, "weight/raw_")
        add(QUANTILES, measures.weight_quantiles, "weight/")
    if rule.weight is not None and rule.weight.bounds is not None:
        add("upper", measures.found_weight_bound, "weight/")
    for index, gate in enumerate(rule.gates):
        name = f"{gate_name(index, gate)}/"
        add(SUMMARY, partial(gate_measures.gate_statistic, index, name), name)
        add(QUANTILES, partial(gate_measures.gate_quantiles, index, name), name)
        add(" ".join(OF_GATE), partial(gate_measures.gate_rejections, index, name), name)
        if gate.bounds is not None:
            add("upper", partial(gate_measures.found_gate_bound, index, name), name)
    return table


_VALUED: dict[str, Measure] = dict.fromkeys(GAPS, measures.advantage_gaps) | dict.fromkeys(
    SELECTION, measures.selection
)
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
