"""What there is to say about settings that were written: what the target does in its own way, and what to beware of there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.dialects.bounds import bound_findings
from trimtab.dialects.equivalence import OPEN
from trimtab.dialects.fields import SOFT, Gravity, in_words, rule_gravity
from trimtab.dialects.framework import Dialect
from trimtab.dialects.lookup import look_up
from trimtab.dialects.reader import read
from trimtab.dialects.reading import Finding, Omission, PartName, Reading
from trimtab.dialects.settings import flat_settings
from trimtab.dialects.writing.governing import governing
from trimtab.dialects.writing.proposals import as_tree
from trimtab.dialects.writing.words import thing
from trimtab.errors import ConfigError

Said = tuple[list[Omission], list[Finding]]
"""What comes out otherwise, and what is only worth knowing."""


def of_correction(dialect: Dialect, asked: Reading, back: Reading, settings: dict[str, Any]) -> Said:
    """What the target does in its own way with a correction whose weights it can say."""
    key, before = next(iter(settings), ""), asked.rule is not None and asked.rule.denominator == "trained"
    counts = ("before", "after") if before else ("after", "before")
    changed = {
        "kept": f"what leaves the mask: {dialect.title} and the source differ in whether tokens turned away go or stay with weight 0, "
        "which changes the KL and entropy terms",
        "limits": f"its limits on log-ratios: {dialect.title} has others, and numbers differ where |log_r| is beyond them",
        "denominator": f"a loss divided by the tokens {counts[0]} rejection: {dialect.title} divides by those {counts[1]} it",
        "applies_to": f"a weight on {_weighed(asked)}: in {dialect.title} it multiplies {_weighed(back)}",
    }
    notes = {
        "kept": f"{dialect.title} and the source differ in whether tokens turned away leave the mask or stay in it with weight 0; the "
        "policy loss is the same, KL and entropy terms may not be.",
        "limits": f"{dialect.title} holds log-ratios within other safety limits; numbers differ only where |log_r| is beyond them.",
    }
    grave = rule_gravity(asked, back)
    lost = [Omission("correction", "", changed[name], whole=False) for name in changed if grave.get(name) == "differs"]
    return lost, [Finding(key, "note", notes[name]) for name in notes if grave.get(name) == "note"]


def _weighed(reading: Reading) -> str:
    rule = reading.rule
    return "the KL term too" if rule is not None and rule.applies_to == "policy+kl" else "the policy loss alone"


def of_fields(
    dialect: Dialect, part: PartName, settings: dict[str, Any], off: Mapping[str, tuple[Gravity, tuple[Any, Any]]]
) -> Said:
    """What the target computes a little otherwise, each kind of difference once, on the key that it hangs on."""
    found: dict[tuple[Gravity, str], list[str]] = {}
    for path, (grave, _) in off.items():
        if grave:
            found.setdefault((grave, SOFT[path.rpartition(".")[2]]), []).append(path)
    lost: list[Omission] = []
    noted: list[Finding] = []
    for (grave, text), paths in found.items():
        key, moves = governing(dialect, part, settings, paths[0])
        ends = ((thing(path), *off[path][1]) for path in paths)
        named = ", ".join(f"{name}: {in_words(one)} becomes {in_words(other)}" for name, one, other in ends)
        if grave == "note":
            noted.append(Finding(key if moves else part, "note", f"{dialect.title} {text} ({named}.)"))
        else:
            lost.append(
                Omission(part, key if moves else "", f"{named}: {dialect.title} {text.rstrip('.')}", whole=False)
            )
    return lost, noted


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
