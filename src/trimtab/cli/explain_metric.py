"""`trimtab explain --metric`: what a name in a framework's log is."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from trimtab.cli import show
from trimtab.logged.names import LoggedName, Relation, ask

RELATIONS: dict[Relation, str] = {
    "same": "{}",
    "negative": "{} with the opposite sign",
    "complement": "1 − {}",
    "near": "{} is nearest: another pair, mask or bound",
    "bound": "its logarithm is at least {}",
}


def metric_page(text: str) -> list[RenderableType]:
    """All that is known of a name; where several frameworks log it, a line for each."""
    rows = ask(text)
    if len(rows) == 1:
        return _page(rows[0])
    lines = [(row.framework, row.name, row.formula, ours(row)) for row in rows]
    hint = f"All of one: trimtab explain --metric {rows[0].framework}:{rows[0].name}"
    traps = [Text(f"{row.framework}: {row.trap}.", style="yellow") for row in rows if row.trap]
    return [show.table(("FRAMEWORK", "NAME", "FORMULA", "OURS"), lines), Text(""), *traps, Text(hint, style="dim")]


def _page(row: LoggedName) -> list[RenderableType]:
    facts = {
        "formula": row.formula,
        "policies": row.pair,
        "mask": row.mask,
        "values": row.values,
        "hides": row.hides,
        "misleads": row.trap,
        "ours": ours(row),
        "logged": row.when,
        "source": f"{row.source} ({row.framework} {row.version})",
    }
    lines = [(name, value) for name, value in facts.items() if value and value != "none"]
    return [Text(f"{row.framework}: {row.name}", style="bold"), show.table(("", ""), lines)]


def ours(row: LoggedName) -> str:
    """The metric of ours in words."""
    return RELATIONS[row.relation].format(row.metric) if row.ours else "none"
