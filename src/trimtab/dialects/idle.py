"""Keys of ours that a file writes down for nothing: no rule asks for them, or the part they belong to is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast, get_args

from trimtab.dialects.files.unknown import Unknown
from trimtab.dialects.framework import Given
from trimtab.dialects.reading import Finding, PartName, Reading
from trimtab.dialects.unread import MOST_NAMED, concerns

NOTHING = (None, False, 0, "", "none", "off", "null")
"""Values that ask for nothing, so that it is no news that they do nothing."""


def idle_findings(asked: Given, reading: Reading, *, is_command: bool) -> Iterator[Finding]:
    """One note with the numbers that change nothing here. A default is one of them in a command only.

    A number that no rule asks for is not in the formula that is shown. Of a switch that says nothing: it chooses the formula, and a rule
    may take it for granted. Where a framework ignores a switch, a remark of its own says so.
    """
    refused = {each.part for each in reading.refused}
    read = {part for part in get_args(PartName) if asked.speaks_of(part)} - refused
    named = [
        name
        for label, name in asked.places.items()
        if label not in asked.acting
        and asked.part_of(label) in read
        and _is_amount(asked.values.get(label))
        and _asks(asked, label, is_command)
        and not _is_told(name, reading)
    ]
    if named:
        text = "This is written down and without effect under these settings."
        yield Finding(", ".join(named[:MOST_NAMED]), "note", text)


def gone_findings(asked: Given, reading: Reading) -> Iterator[Finding]:
    """For each part that is refused, one note with what of a clip, a ratio or a KL goes with it."""
    for refusal in reading.refused:
        named = [
            name
            for label, name in asked.places.items()
            if asked.part_of(label) == refusal.part
            and label not in asked.acting
            and _asks(asked, label, True)
            and name.rpartition(".")[2] not in refusal.text.replace("-", "_")
        ]
        if named:
            text = f"This belongs to the {refusal.part}, which is not read, so it is not shown."
            yield Finding(", ".join(named[:MOST_NAMED]), "note", text)


def _asks(asked: Given, label: str, is_command: bool) -> bool:
    """Whether a key was given a value that asks for a correction, a clip or a KL; a word alone, as low_var_kl, only says how."""
    value = asked.values.get(label)
    if isinstance(value, Unknown) or value in NOTHING:
        return False
    if asked.part_of(label) != "correction" and (isinstance(value, str) or not concerns(asked.places[label])):
        return False
    return is_command or value != asked.dialect.by_label[label].default


def _is_amount(value: Any) -> bool:
    """Whether a value is a number, numbers, or bounds in one word, as 0.5_2.0."""
    if isinstance(value, list):
        return all(map(_is_amount, cast("list[Any]", value)))
    if isinstance(value, str):
        return re.match(r"[-+.]?\d", value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_told(name: str, reading: Reading) -> bool:
    """Whether a finding of the framework's own speaks of the key already."""
    return any(name == each.key or name.rpartition(".")[2] in each.text for each in reading.findings)
