"""`trimtab explain`: a correction, or the divergences, laid out for reading."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from trimtab.cli import show
from trimtab.config.correction import Correction
from trimtab.config.divergences import DIVERGENCES
from trimtab.config.files import OUR_ENDINGS, correction_from, is_file_name, to_yaml
from trimtab.config.presets import BYPASS, PRESETS, Preset, preset_names
from trimtab.errors import ConfigError
from trimtab.explain.examples import examples, setting
from trimtab.explain.gate_words import as_written
from trimtab.explain.sensitivity import rarely_fires
from trimtab.explain.words import Passage, formulas, passages

if TYPE_CHECKING:
    from trimtab.dialects.sources.opening import OpenedFile


def _presets_from(start: str) -> list[str]:
    """For the shell: presets that begin so."""
    return [name for name in PRESETS if name.startswith(start)]


def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE",
            help="A preset (see `trimtab presets`) or a file of settings.",
            autocompletion=_presets_from,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="key=value", help="Parameters of the preset, or dotted keys of the file (gates.0.upper=2)."
        ),
    ] = None,
    yaml: Annotated[bool, typer.Option("--yaml", help="Print only the YAML of the correction.")] = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="List the divergences a gate can test.")] = False,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="[FRAMEWORK:]NAME",
            help="Explain a name in a framework's log: formula, policies, mask, what it hides, ours.",
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="NAME", help="The framework the file is written for. Recognised if you leave it out."
        ),
    ] = None,
    documented: Annotated[
        bool,
        typer.Option(
            "--documented", help="A framework's file: read what its documentation promises, where the code differs."
        ),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="A framework's file: print notes in full too, and where ours departs.")
    ] = False,
    version: Annotated[
        str,
        typer.Option(
            "--version",
            metavar="X.Y.Z",
            help="A framework's file: the release to read it as, where several can be read. The newest if you leave it out.",
        ),
    ] = "",
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A framework's file: set one of its keys on top; repeatable."),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            "--root",
            metavar="DIR",
            help="A framework's file: read files that it builds on anywhere below this folder. Its repository if you leave it out.",
        ),
    ] = None,
    fail_on: Annotated[
        Literal["risk", "defect"] | None,
        typer.Option("--fail-on", help="A framework's file: exit with 1 if it has a finding of this kind."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A framework's file: print JSON, every finding with its kind.")
    ] = False,
) -> None:
    """Explain a correction: words, formulas, examples.

    Shows what each gate tests and what happens outside its bounds, what a token weighs, a few tokens worked by hand, and what each
    framework calls it. Numbers are read as in YAML: 1e-4 is a number, null leaves a bound open.

    The file can also be a framework's: YAML, TOML, JSON, a launch script (.sh) or a Python script. Nothing in it is run. You see what
    it computes, then what is risky or wrong, the worst first. If it leaves something open that matters, say it with --set. If a part
    cannot be read, the rest is explained.

    Exit codes: 0 explained. 1 a finding of the kind of --fail-on. 2 an error. 3 a part of the file could not be read.
    """
    if metrics:
        show.put(
            show.table(("METRIC", "DIRECTION", "FORMULA", "ON-POLICY", "MEANING"), metric_rows()),
            "",
            "ℓ = log_r, r = e^ℓ; p and q: probability under the target and under the base of the pair, by default "
            "proximal/behavior.",
        )
        return
    if metric is not None:
        from trimtab.cli.explain_metric import metric_page  # with the table of names

        show.put(*metric_page(metric))
        return
    if name is None:
        raise ConfigError("explain needs a preset or a FILE.yaml, got neither. `trimtab presets` lists the names.")
    rule = None if framework is not None else own_or_theirs(name, changes or [], root)
    if not isinstance(rule, Correction):
        from trimtab.cli.explain_file import explain_file  # with the frameworks

        explain_file(rule or Path(name), framework, documented, sets or [], everything, version, root, fail_on, as_json)
        return
    if fail_on is not None or as_json:
        raise ConfigError(
            "explain needs a framework's file with --fail-on or --json, got a correction of ours. Leave them out."
        )
    if yaml:
        show.put_raw(to_yaml(rule))
        return
    show.put(*explanation(rule, name, changes or []))


def own_or_theirs(name: str, changes: list[str], root: Path | None = None) -> Correction | OpenedFile | None:
    """A correction of ours by name or file; a framework's file, opened if need be to tell them apart."""
    path = Path(name)
    if name not in preset_names() and os.path.isdir(path):
        from trimtab.cli.explain_file import refuse_folder  # with the frameworks

        refuse_folder(path, "explain")
    if not (is_file_name(name) or _is_file(path)):
        return correction_from(name, changes)
    if path.suffix.lower() not in OUR_ENDINGS and _is_file(path):
        return None
    file = None if changes or not _is_file(path) else _opened(path, root)
    if file is not None and file.tree and OUR_NAMES.isdisjoint(str(name).partition(".")[0] for name in file.tree):
        return file
    try:
        return correction_from(name, changes)
    except ConfigError:
        if changes or not _is_file(path) or _is_ours(path):
            raise
        return file


OUR_NAMES = {*Correction.model_fields, "correction", "preset"}
"""What a file with a correction of ours may have at its top."""


def _opened(path: Path, root: Path | None) -> OpenedFile | None:
    """A file as frameworks' files are opened; None for one that cannot be."""
    from trimtab.dialects.sources.opening import open_file  # with the frameworks

    try:
        return open_file(path, root)
    except ConfigError:
        return None


def _is_ours(path: Path) -> bool:
    """Whether a file that cannot be read as a correction was meant as one: by the names at its top."""
    from trimtab.dialects.sources.settings import flat_settings  # with the frameworks

    try:
        return any(name.partition(".")[0] in Correction.model_fields for name in flat_settings(path))
    except ConfigError:
        return True


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def explanation(rule: Correction, name: str, changes: Sequence[str]) -> list[RenderableType]:
    """The whole page: meaning, formulas, each step in words, worked examples, names elsewhere, YAML."""
    preset = None if is_file_name(name) else PRESETS[name.removeprefix(BYPASS)]
    page: list[RenderableType] = [Text(" ".join([Path(name).name if preset is None else name, *changes]), style="bold")]
    page.extend(_story(rule, preset, name))
    page.extend(Text(doubt, style="yellow") for gate in rule.gates if (doubt := rarely_fires(gate)))
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
    return [*found[:2], _inset(Text(f"{setting(rule)}{normal}", style="dim")), *found[2:]]


def metric_rows() -> list[tuple[str, str, str, str, str]]:
    """One row per divergence and direction."""
    rows: list[tuple[str, str, str, str, str]] = []
    for name, facts in DIVERGENCES.items():
        for place, (direction, formula) in enumerate(facts.formulas.items()):
            shown = f"{formula},  {facts.where}" if facts.where and place == 0 else formula
            first = (name, facts.words, as_written(facts.neutral)) if place == 0 else ("", "", "")
            rows.append((first[0], direction or "", shown, first[2], first[1]))
    return rows
