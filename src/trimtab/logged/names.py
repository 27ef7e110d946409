"""What a name in a framework's log is: formula, pair of policies, mask, what it hides, and the metric of ours. One row per name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from trimtab.errors import ConfigError, UnknownNameError

Relation = Literal["same", "negative", "complement", "near", "bound"]
SIGNS: Mapping[str, Relation] = {"−": "negative", "1 − ": "complement", "≈ ": "near", "log ≥ ": "bound"}
"""How a row writes that a name is not the metric itself: its negative, 1 less it, another pair or mask, a bound by the logarithm."""
RANGES = {
    "drift/kl": "either sign by chance; negative on many steps says that the log-probs are not the sampler's own",
    "drift/k3": "0 and up; 1e-5 to 1e-3 for dense models, 1e-3 to 1e-1 for mixtures of experts",
    "drift/abs_log_r": "0 and up",
    "drift/prob_diff": "0 to 1",
    "kept_fraction": "0 to 1",
    "weight/ess": "0 to 1",
    "weight/mean": "1 where nothing is cut",
    "ratio/mean": "1 in expectation on samples of the behavior policy",
    "policy/ratio_mean": "1 in expectation on samples of the anchor",
    "policy/k1": "either sign by chance",
    "policy/clip_high + policy/clip_low": "0 to 1",
    "policy/entropy": "0 to the logarithm of the vocabulary",
}
"""By the metric of ours, where a row says nothing else."""
SUFFIXES = ("/avg", "/all/mean", "/mean", ":mean", ":max", ":min", "@sum", "@mean")
PREFIXES = ("train/", "ppo_actor/update/", "ppo_actor/", "actor/", "policy/", "loss_metrics/", "rollout/", "update/")


@dataclass(frozen=True)
class LoggedName:
    """One name of one framework's log."""

    framework: str
    name: str
    """`*` stands for a part that settings fill."""
    formula: str
    ours: str
    """A metric of ours, behind a sign of `SIGNS` where the name is not the metric itself; empty where there is none."""
    source: str
    """File and line, as of `version`."""
    version: str
    hides: str
    pair: str
    mask: str
    when: str
    range: str = ""
    trap: str = ""
    """Why the name misleads; empty where it does not."""

    @property
    def relation(self) -> Relation:
        """How the name is related to the metric of ours."""
        for sign, relation in SIGNS.items():
            if self.ours.startswith(sign):
                return relation
        return "same"

    @property
    def metric(self) -> str:
        """The metric of ours alone."""
        return next((self.ours.removeprefix(sign) for sign in SIGNS if self.ours.startswith(sign)), self.ours)

    @property
    def values(self) -> str:
        """Which values are usual or possible."""
        return self.range or (RANGES.get(self.metric, "") if self.relation in ("same", "near") else "")

    def matches(self, name: str) -> bool:
        """Whether a logged name is this one."""
        return bool(_pattern(self.name).fullmatch(name))


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(".+".join(map(re.escape, name.split("*"))))


@cache
def logged_names() -> tuple[LoggedName, ...]:
    """Every row, in the order of names.txt."""
    text = resources.files("trimtab.logged").joinpath("names.txt").read_text(encoding="utf-8")
    rows: list[LoggedName] = []
    framework = version = ""
    shared: list[str] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)]
        if line.startswith("["):
            framework, version, shared[:] = *line[1 : line.index("]")].split(), cells
            shared[0] = cells[0].partition("] ")[2]
        else:
            rows.append(_row(framework, version, shared, cells))
    return tuple(rows)


def _row(framework: str, version: str, shared: Sequence[str], cells: Sequence[str]) -> LoggedName:
    name, formula, ours, line, hides, *extra = cells
    given = dict(zip(("file", "pair", "mask", "when"), shared, strict=True))
    given |= dict(each.split(": ", 1) for each in extra)
    file = given.pop("file")
    source = f"{file}:{line}" if line else file
    return LoggedName(framework, name, formula, ours, source, version, hides, **given)


def shorter(name: str) -> list[str]:
    """A logged name, then without the suffixes and prefixes that loggers add, then with the suffix of a mean."""
    tails = [name, *(name.removesuffix(each) for each in SUFFIXES if name.endswith(each))]
    names = list(tails)
    for each in names:  # grows: a name may have several prefixes
        names += [each.removeprefix(prefix) for prefix in PREFIXES if each.startswith(prefix)]
    return list(dict.fromkeys([*names, *(f"{each}/avg" for each in names)]))


def rows_of(name: str, framework: str | None = None) -> list[LoggedName]:
    """The rows that a logged name stands for, one per framework that logs it; none where it is not known."""
    for each in shorter(name):
        for table in (_names(), _short_names()):
            if rows := [row for row in table.get(each, ()) if _is_of(row, framework)]:
                return rows
        if row := next((row for row in _families() if _is_of(row, framework) and row.matches(each)), None):
            return [row]
    return []


def _is_of(row: LoggedName, framework: str | None) -> bool:
    return framework in (None, row.framework, row.framework.removesuffix("-async"))


@cache
def _names() -> Mapping[str, Sequence[LoggedName]]:
    index: dict[str, list[LoggedName]] = {}
    for row in logged_names():
        index.setdefault(row.name, []).append(row)
    return index


@cache
def _short_names() -> Mapping[str, Sequence[LoggedName]]:
    """By what stands behind the first section of a name: people leave it out."""
    index: dict[str, list[LoggedName]] = {}
    for row in logged_names():
        short = row.name.partition("/")[2]
        if short and not any(row.framework == each.framework for each in index.get(short, ())):
            index.setdefault(short, []).append(row)
    return index


@cache
def _families() -> tuple[LoggedName, ...]:
    """Rows with a part that settings fill, the longest first: the most exact of those that match comes first."""
    return tuple(sorted((row for row in logged_names() if "*" in row.name), key=lambda row: -len(row.name)))


def ask(text: str) -> list[LoggedName]:
    """The rows for `[FRAMEWORK:]NAME`; an error that offers the nearest where there is none."""
    first, colon, rest = text.partition(":")
    framework = {"swift": "ms-swift"}.get(first, first)
    framework, name = (
        (framework, rest) if colon and framework in {row.framework for row in logged_names()} else (None, text)
    )
    if not name.strip("/: "):
        raise ConfigError(f"--metric needs [FRAMEWORK:]NAME, got {text!r}. As in verl:rollout_corr/kl.")
    rows = rows_of(name, framework)
    if rows:
        return rows
    known = dict.fromkeys(row.name for row in logged_names() if _is_of(row, framework))
    if framework and (others := rows_of(name)):
        raise UnknownNameError(
            f"{name!r} is no name of {framework} that is known, but of {' and '.join(row.framework for row in others)}."
        )
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    near += [each for each in known if each.rpartition("/")[2] == name.rpartition("/")[2] and each not in near][:3]
    offered = f"Did you mean {' or '.join(map(repr, near))}?" if near else "docs/logged-names.md lists all."
    whose = framework or "any of the fourteen frameworks"
    raise UnknownNameError(f"{name!r} is no name of {whose} that is known. {offered}")


def framework_logging(names: Iterable[str]) -> str | None:
    """The framework whose names these are: the one with most of them, none where two have as many or there are none."""
    score: dict[str, int] = {}
    for name in names:
        rows = rows_of(name)
        for row in rows:
            score[row.framework] = score.get(row.framework, 0) + (4 if len(rows) == 1 else 1)
    ranked = sorted(score, key=lambda each: -score[each])
    if not ranked or (len(ranked) > 1 and score[ranked[0]] == score[ranked[1]]):
        return None
    return ranked[0]
