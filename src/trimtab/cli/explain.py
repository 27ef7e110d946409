"""`trimtab explain`: a correction, or the divergences, laid out for reading."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from trimtab.cli import show
from trimtab.config.algebra import Correction
from trimtab.config.files import is_file_name, to_yaml
from trimtab.config.metrics import METRICS
from trimtab.config.presets import BYPASS, PRESETS, Preset
from trimtab.config.reach import rarely
from trimtab.config.words import Passage, as_written, formulas, passages
from trimtab.config.worked import SETTING, examples


def explanation(rule: Correction, name: str, changes: Sequence[str]) -> list[RenderableType]:
    """The whole page: meaning, formulas, each step in words, worked examples, names elsewhere, YAML."""
    preset = None if is_file_name(name) else PRESETS[name.removeprefix(BYPASS)]
    page: list[RenderableType] = [Text(" ".join([Path(name).name if preset is None else name, *changes]), style="bold")]
    page.extend(_story(rule, preset, name))
    page.extend(Text(doubt, style="yellow") for gate in rule.gates if (doubt := rarely(gate)))
    page.extend([Text(""), *(_inset(Text(line, style="green")) for line in formulas(rule))])
    for section in passages(rule):
        page.extend(show.lines(section))
    page.extend(_examples(rule))
    if preset is not None and preset.called:
        title = "What frameworks call it" + (" (decoupled)" if name != preset.name else "")
        page.extend(show.lines(Passage(title, tuple(preset.called.items()))))
    page.extend([Text(""), show.heading("YAML"), _inset(Text(to_yaml(rule).rstrip()))])
    return page


def _story(rule: Correction, preset: Preset | None, name: str) -> list[RenderableType]:
    """What it means and where it comes from; for a file, the preset it equals, if any."""
    if preset is not None:
        form = " Here in its bypass form." if name != preset.name else ""
        numbers = [Text(f"Numbers: {preset.numbers.replace('`', '')}.", style="dim")] if preset.numbers else []
        return [Text(f"{preset.meaning}{form}"), Text(f"Source: {preset.source}.", style="dim"), *numbers]
    same = [each.name for each in PRESETS.values() if each() == rule]
    return [Text(f"The same as preset {same[0]}: {PRESETS[same[0]].meaning}")] if same else []


def _inset(text: Text) -> RenderableType:
    return Padding(text, (0, 0, 0, 2))


def _examples(rule: Correction) -> list[RenderableType]:
    normal = "" if rule.normalize is None else " Weights before they are divided by their mean."
    found = show.lines(Passage("Worked by hand", tuple(examples(rule))))
    return [*found[:2], _inset(Text(f"{SETTING}{normal}", style="dim")), *found[2:]]


def metric_rows() -> list[tuple[str, str, str, str, str]]:
    """One row per divergence and direction."""
    rows: list[tuple[str, str, str, str, str]] = []
    for name, facts in METRICS.items():
        for place, (direction, formula) in enumerate(facts.formulas.items()):
            shown = f"{formula},  {facts.where}" if facts.where and place == 0 else formula
            first = (name, facts.words, as_written(facts.neutral)) if place == 0 else ("", "", "")
            rows.append((first[0], direction or "", shown, first[2], first[1]))
    return rows
