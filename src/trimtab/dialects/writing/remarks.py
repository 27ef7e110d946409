"""What there is to say about settings that were written: what the target does in its own way, and what to beware of there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction
from trimtab.dialects.bounds import bound_findings
from trimtab.dialects.dialect import Dialect
from trimtab.dialects.fields import AFTER_GATES, SOFT, in_words, turns_away
from trimtab.dialects.lookup import look_up
from trimtab.dialects.reader import read
from trimtab.dialects.reading import Finding, Level, Reading
from trimtab.dialects.same import FAR, OPEN, Same
from trimtab.dialects.settings import flat_settings
from trimtab.dialects.writing.governing import governing
from trimtab.dialects.writing.proposals import as_tree
from trimtab.dialects.writing.words import thing
from trimtab.errors import ConfigError


def of_correction(dialect: Dialect, rule: Correction, agreement: Same, settings: dict[str, Any]) -> list[Finding]:
    """What the target does in its own way with a correction that it can say."""
    key = next(iter(settings))
    found: list[Finding] = []
    if not agreement.kept:
        text = (
            f"{dialect.title} and the source differ in whether tokens turned away leave the mask or stay in it with weight 0; the "
            "policy loss is the same, KL and entropy terms may not be."
        )
        found.append(Finding(key, "note", text))
    if not agreement.limits:
        text = f"{dialect.title} holds log-ratios within other safety limits; numbers differ only where |log_r| is beyond them."
        found.append(Finding(key, "note", text))
    if not agreement.denominator:
        counted = "after" if rule.denominator == "trained" else "before"
        text = f"{dialect.title} divides the loss by the tokens {counted} rejection; the source counts the other way."
        found.append(Finding(key, "surprise", text))
    if not agreement.applies_to:
        text = "The source and the target differ in whether the weight also multiplies the KL term; check beta."
        found.append(Finding(key, "surprise", text))
    return found


def of_fields(
    dialect: Dialect, part: str, asked: Reading, settings: dict[str, Any], off: dict[str, tuple[Any, Any]]
) -> list[Finding]:
    """What the target computes a little otherwise, each kind of difference once, on the key that it hangs on."""
    rejects = turns_away(asked.correction)
    found: dict[tuple[Level, str], list[str]] = {}
    for path in off:
        name = path.rpartition(".")[2]
        if (name not in AFTER_GATES or rejects) and not _is_far(name, off[path]):
            found.setdefault(SOFT[name], []).append(path)
    said: list[Finding] = []
    for (level, text), paths in found.items():
        key, moves = governing(dialect, part, settings, paths[0])
        ends = ", ".join(f"{thing(path)}: {in_words(off[path][0])} becomes {in_words(off[path][1])}" for path in paths)
        said.append(Finding(key if moves else part, level, f"{dialect.title} {text} ({ends}.)"))
    return said


def _is_far(name: str, ends: tuple[Any, Any]) -> bool:
    """Whether both limits on a log-ratio lie beyond all that is met."""
    return name in ("log_limit", "log_upper", "input_limit") and all(end is None or end >= FAR for end in ends)


def of_target(dialect: Dialect, settings: dict[str, Any], back: Reading) -> Iterator[Finding]:
    """The target's own traps. Notes are left out, and so is what speaks only of a number that stands for none.

    A defect that the numbers already allow for, since it is not in the documented meaning, needs no remedy.
    """
    tree = as_tree(settings)
    doubts = {each.text for each in bound_findings(look_up(dialect, flat_settings(tree)), back.correction)}
    open_keys = {path for path, value in settings.items() if _is_open(value)}
    promised = _documented_findings(dialect, tree)
    for each in back.findings:
        if each.level == "defect" and each not in promised:
            yield Finding(each.key, "note", f"These numbers allow for it already: {_without_remedy(each.text)}.")
        elif each.level != "note" and each.text not in doubts and not _speaks_of_open(each, open_keys):
            yield each


def _speaks_of_open(finding: Finding, open_keys: set[str]) -> bool:
    return finding.key in open_keys or f"{OPEN:g}" in finding.text


def _documented_findings(dialect: Dialect, tree: dict[str, Any]) -> tuple[Finding, ...]:
    try:
        return read(dialect.name, tree, documented=True).findings
    except ConfigError:
        return ()


def _without_remedy(text: str) -> str:
    """The sentence up to its last semicolon, after which a remark says what to do."""
    said = text.rpartition("; ")[0] or text.rstrip(".")
    return said[0].lower() + said[1:] if said.startswith("The ") else said


def _is_open(value: Any) -> bool:
    """Whether a number, or a bound among several, stands for an open side."""
    if isinstance(value, list):
        return any(_is_open(each) for each in value)  # pyright: ignore[reportUnknownVariableType]
    return isinstance(value, int | float) and abs(value) >= OPEN
