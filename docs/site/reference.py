"""Pages made from the code: public names with an example from the docs, commands, errors, every framework's keys."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import frameworks  # docs/ is on the path: the hooks put it there
import typer
from run_blocks import Block, blocks

import trimtab
from trimtab import errors
from trimtab.cli.app import COMMANDS, app, load_command
from trimtab.dialects import DIALECTS
from trimtab.dialects.framework import Dialect

ROOT = Path(__file__).parents[2]
WIDE = "---\nhide: [toc]\n---\n\n"
"""Before a page that is one table: nothing stands beside it."""


def public_names() -> list[str]:
    """What `import trimtab` offers."""
    return sorted(name for name in trimtab.__all__ if not name.startswith("_"))


def examples(pages: Iterable[Path]) -> dict[str, Block]:
    """For each public name the shortest block of the docs that uses it."""
    every = [block for page in pages for block in blocks(page) if block.kind == "python"]
    found: dict[str, Block] = {}
    for name in public_names():
        using = [each for each in every if re.search(rf"\b{name}\b", each.code)]
        if using:
            found[name] = min(using, key=lambda each: len(each.code))
    return found | {name: found[maker] for name, maker in makers().items() if name not in found and maker in found}


def makers() -> dict[str, str]:
    """For what a public function returns, that function: its example shows the value in use."""
    functions = {name: getattr(trimtab, name) for name in public_names()}
    returned = {name: str(getattr(each, "__annotations__", {}).get("return", "")) for name, each in functions.items()}
    return {kind.rpartition(".")[2]: name for name, kind in returned.items() if kind}


def name_page(name: str, example: Block | None) -> str:
    """One public name: signature, docstring, an example that runs."""
    value = getattr(trimtab, name)
    path = f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else f"trimtab.{name}"
    parts = [
        f"---\ntitle: {name}\n---\n\n::: {path}\n    options: {{heading_level: 1}}\n\n`from trimtab import {name}`\n"
    ]
    if example is not None:
        where = example.page.resolve().relative_to(ROOT)
        parts.append(f"\n## Example\n\nFrom [{where.stem}](../{where}):\n\n```python\n{example.code}```\n")
    return "".join(parts)


def names_index() -> str:
    """A table of all public names."""
    rows = [f"| [`{name}`]({name}.md) | {_first_line(getattr(trimtab, name))} |" for name in public_names()]
    return "\n".join(
        ["# Public names", "", "Everything that `import trimtab` offers.", "", "| name | |", "| --- | --- |", *rows, ""]
    )


def _first_line(value: Any) -> str:
    text = (value.__doc__ or "").strip().splitlines()
    return text[0].replace("|", "\\|") if text else ""


def commands() -> dict[str, str]:
    """A page per command, from what `--help` knows."""
    group: Any = typer.main.get_command(app)
    group.commands = {name: load_command(name) for name in COMMANDS}  # they are loaded when they are called
    return dict(sorted(_commands("trimtab", group)))


def _commands(name: str, command: Any) -> Iterable[tuple[str, str]]:
    nested: Mapping[str, Any] = getattr(command, "commands", {})
    yield name, _command_page(name, command, nested)
    for part, each in nested.items():
        if not each.hidden:
            yield from _commands(f"{name} {part}", each)


def _command_page(name: str, command: Any, nested: Mapping[str, Any]) -> str:
    rows = [
        f"| {_flags(each)} | {html.escape(' '.join((each.help or '').split()))}{_default(each)} |"
        for each in command.params
        if not getattr(each, "hidden", False)
    ]
    described = re.sub(r"\[/?[a-z ]+\]", "", (command.help or "").replace("\b", "")).strip()
    lines = [f"# {name}", "", *_paragraphs(described), ""]
    lines += ["| option | |", "| --- | --- |", *rows, ""] if rows else []
    lines += [f"- [`{name} {part}`]({f'{name} {part}'.replace(' ', '-')}.md)" for part in nested]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> list[str]:
    """Help as Markdown: lines that begin with `trimtab` are examples."""
    out: list[str] = []
    for line in text.splitlines():
        out.append(f"    {line.strip()}" if line.strip().startswith(("trimtab ", "$ ")) else html.escape(line.strip()))
    return out


def _flags(parameter: Any) -> str:
    names = [*parameter.opts, *parameter.secondary_opts]
    return ", ".join(f"`{each}`" for each in names) if names[0].startswith("-") else f"`{names[0].upper()}`"


def _default(parameter: Any) -> str:
    value = parameter.default
    plain = (
        value is None
        or callable(value)
        or value in ((), [], False)
        or not getattr(parameter, "opts", [""])[0].startswith("-")
    )
    return "" if plain else f" Default: `{html.escape(str(value))}`."


def error_classes() -> list[type[Exception]]:
    """Every exception of ours."""
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    return [each for each in found if each.__module__ == errors.__name__]


def keys_page() -> str:
    """Every key of every framework in one table that can be filtered."""
    rows = [
        f"<tr><td>{html.escape(each.title)}</td><td><code>{html.escape(key.path)}</code></td>"
        f"<td><code>{html.escape(repr(key.default))}</code></td><td>{'removed' if key.legacy else html.escape(key.part)}</td></tr>"
        for each in DIALECTS.values()
        for key in each.keys
    ]
    return f"{WIDE}# Every key\n\n" + filtered(
        f"The {len(rows)} keys that are read, of {len(DIALECTS)} frameworks. What each option computes stands on the page of its "
        "framework, and of all together under [every option](options.md).",
        "keys",
        ("framework", "key", "default", "about"),
        rows,
    )


def options_page() -> str:
    """Every option of every framework with what it computes and what was found, in one table that can be filtered."""
    rows: list[str] = []
    for each in DIALECTS.values():
        said = [(name, computes, found) for name, computes, _, found in option_rows(each)]
        said += [(name, value, found) for name, value, found in objective_rows(each)]
        said += [(name, f"**refused** {why}", "") for name, why in frameworks.refusals(each)]
        rows += [
            "<tr>" + "".join(f"<td>{as_html(cell)}</td>" for cell in (each.title, name, computes, found)) + "</tr>"
            for name, computes, found in said
        ]
    return f"{WIDE}# Every option\n\n" + filtered(
        f"{len(rows)} options of {len(DIALECTS)} frameworks: what each computes as shipped, and what is surprising or wrong about it.",
        "options",
        ("framework", "option", "computes", "findings"),
        rows,
    )


def option_rows(dialect: Dialect) -> list[tuple[str, str, str, str]]:
    """The options of corrections, as the page of the framework has them."""
    return [
        frameworks.option(dialect, name, settings)
        for name, settings in frameworks.EXAMPLES[dialect.name].corrections.items()
    ]


def objective_rows(dialect: Dialect) -> list[tuple[str, str, str]]:
    """Its losses and estimators."""
    return [
        frameworks.objective(dialect, name, settings)
        for name, settings in frameworks.EXAMPLES[dialect.name].objectives.items()
    ]


def as_html(text: str) -> str:
    """The little Markdown that stands in a cell: code, bold, line ends."""
    shown = html.escape(text).replace("&lt;br&gt;", "<br>")
    shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", shown)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", shown)


def filtered(words: str, name: str, head: Iterable[str], rows: Iterable[str]) -> str:
    """A table whose rows are chosen by what is typed above it; assets/filter.js does it, in the page."""
    titles = "".join(f"<th>{each}</th>" for each in head)
    return (
        f"{words}\n\n"
        f'<p><label>Only rows with <input type="search" class="table-filter" data-table="{name}" '
        'placeholder="clip, icepop, geo_mask_high …"></label> <span class="table-count"></span></p>\n'
        f'<table id="{name}"><thead><tr>{titles}</tr></thead><tbody>{"".join(rows)}</tbody></table>\n'
    )


def counts() -> str:
    """How much there is of each kind of test."""
    tests = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    functions = sum(len(re.findall(r"^ *def test_", text, re.MULTILINE)) for text in tests.values())
    laws = sum(text.count("@given") for text in tests.values())
    parity = sum(
        len(re.findall(r"^ *def test_", text, re.MULTILINE)) for path, text in tests.items() if "parity" in path.parts
    )
    ran = sum(1 for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] for _ in blocks(page))
    rows = {
        "test functions, many over dozens of cases": functions,
        "of them drawn at random by Hypothesis": laws,
        "of them against real frameworks": parity,
        "blocks of code in these pages that are run": ran,
        "keys of other frameworks that are read": sum(len(each.keys) for each in DIALECTS.values()),
    }
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {number:,} |" for name, number in rows.items())])
