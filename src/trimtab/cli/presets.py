"""`trimtab presets`: the named corrections."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from trimtab.cli import show
from trimtab.config.presets import BYPASS, PRESETS, Preset
from trimtab.explain.gate_words import as_written


def presets(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: every preset with its settings and names.")
    ] = False,
) -> None:
    """List the named corrections.

    Each with its meaning, its parameters and their defaults, and where it comes from.
    """
    if as_json:
        show.put_raw(
            json.dumps([_preset_facts(each) for each in PRESETS.values()], indent=2, ensure_ascii=False) + "\n"
        )
        return
    show.put(_narrow_table() if show.is_narrow() else _wide_table())
    plain = ", ".join(name for name, each in PRESETS.items() if not each.two_policies)
    show.put(
        "",
        f"{BYPASS}NAME compares current with behavior, without proximal log-probs; every preset has that form but {plain}.",
        "More: trimtab explain NAME [parameter=value…]",
    )


def _wide_table() -> Table:
    rows = [(each.name, each.meaning, parameters(each), each.source) for each in PRESETS.values()]
    return show.table(("NAME", "MEANING", "PARAMETERS", "SOURCE"), rows)


def _narrow_table() -> Table:
    """The same with the source under the meaning."""
    rows = [
        (each.name, "\n".join(parameters(each).split()), Text.assemble(each.meaning, "\n", (each.source, "dim"), "\n"))
        for each in PRESETS.values()
    ]
    return show.table(("NAME", "PARAMETERS", "MEANING"), rows)


def parameters(preset: Preset) -> str:
    """The parameters of a preset with their defaults, as they are typed."""
    return " ".join(
        f"{name}={'null' if value is None else as_written(value)}" for name, value in preset.parameters.items()
    )


def _preset_facts(preset: Preset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "meaning": preset.meaning,
        "parameters": preset.parameters,
        "source": preset.source,
        "called": preset.called,
        "bypass": f"{BYPASS}{preset.name}" if preset.two_policies else None,
        "correction": preset().settings(),
    }
