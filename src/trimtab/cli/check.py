"""`trimtab check`: the laws of this field, asked of a framework's functions or of yours."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.text import Text

from trimtab.cli import show
from trimtab.cli.progress import LiveBar
from trimtab.cli.show import write_file
from trimtab.config.correction import Correction
from trimtab.config.files import correction_from
from trimtab.config.safe_yaml import settings_of
from trimtab.errors import ConfigError, UnknownNameError, nearest

if TYPE_CHECKING:
    from trimtab.check.ask import Ruling
    from trimtab.check.laws import Law
    from trimtab.check.subject import Kind, Subject

BROKEN = 1
"""The exit code where a law is broken."""
RULING_STYLES = {"holds": "green", "broken": "bold red", "does not apply": "dim"}


_Target = Annotated[
    str | None,
    typer.Argument(
        metavar="FRAMEWORK|MODULE:NAME",
        help="verl, trl, skyrl, areal, openrlhf, ms-swift or trimtab; or a loss of yours.",
    ),
]
_Like = Annotated[
    str | None,
    typer.Option(
        "--like",
        metavar="NAME",
        help="The calling convention of your function: a framework's name, or plain (see below), which is assumed.",
    ),
]
_Estimator = Annotated[
    str | None,
    typer.Option("--advantages", metavar="MODULE:NAME", help="An advantage estimator of yours, for votes and groups."),
]
_Ages = Annotated[
    str | None,
    typer.Option("--staleness", metavar="MODULE:NAME", help="A function of yours that says how old rows are."),
]
_Rule = Annotated[
    str | None,
    typer.Option(
        "--rule",
        metavar="'NAME [key=value…]'",
        help="The correction your loss should apply, as in `trimtab explain`: for the law on weights.",
    ),
]
_Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting your function is called with; repeatable."),
]
_Names = Annotated[list[str] | None, typer.Option("--law", metavar="NAME", help="Test this law only; repeatable.")]
_Scripts = Annotated[
    Path | None,
    typer.Option("--scripts", metavar="FOLDER", help="Write every counterexample there, as a script of its own."),
]


def check_laws(
    target: _Target = None,
    like: _Like = None,
    advantages: _Estimator = None,
    staleness: _Ages = None,
    rule: _Rule = None,
    sets: _Sets = None,
    law_names: _Names = None,
    cases: Annotated[int, typer.Option("--cases", min=1, max=100_000, help="Batches drawn for each question.")] = 20,
    seed: Annotated[int, typer.Option("--seed", help="What the batches are drawn from.")] = 0,
    scripts: _Scripts = None,
    as_list: Annotated[bool, typer.Option("--list", help="List the laws and what each one tests, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with every counterexample.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
) -> None:
    """Test a loss against nine laws, and show the smallest batch that breaks one.

    Each law draws small batches, calls the function twice, and compares two numbers that have to agree: with other values under
    the mask, with padding, in other micro-batches, and so on. A broken law comes with its smallest counterexample as Python that runs
    without trimtab.

    Your own function is imported from this folder or from an installed package; that runs the module you name, and nothing else.
    The plain convention is `loss(current, proximal, behavior, mask, advantages)`, tensors [rows, width] by keyword, which returns a
    loss or (loss, metrics). If it also takes step_tokens (the trained tokens of the whole step), losses of micro-batches are summed,
    otherwise averaged. An estimator is `advantages(rewards, mask, group)`, staleness `ages(versions, mask, learner)`, both per row.

    Exit codes: 0 every law tested holds. 1 a law is broken. 2 an error.
    """
    from trimtab.check.laws import LAWS

    chosen = _laws(law_names or [], LAWS)
    if as_list:
        _list(chosen)
        return
    if as_json and as_markdown:
        raise ConfigError("check needs one of --json and --markdown, got both. Leave one out.")
    subject = _subject(target, like, {"advantages": advantages, "ages": staleness}, rule, sets or [])
    rulings = _ask(subject, chosen, cases, seed)
    if scripts is not None:
        _write_scripts(scripts, subject, rulings)
    _tell(subject, rulings, cases, seed, as_json=as_json, as_markdown=as_markdown)
    if any(ruling.ruling == "broken" for ruling in rulings):
        raise typer.Exit(BROKEN)


def _laws(names: Sequence[str], known: dict[str, Law]) -> list[Law]:
    for name in names:
        if name not in known:
            raise UnknownNameError(f"--law needs the name of a law, got {name!r}. {nearest(name, known)}")
    return [law for name, law in known.items() if not names or name in names]


def _subject(
    target: str | None, like: str | None, others: dict[str, str | None], rule: str | None, sets: Sequence[str]
) -> Subject:
    from trimtab.check.load import ADAPTERS, PLAIN_CONVENTION, framework_subject, subject_of

    named = {kind: name for kind, name in others.items() if name is not None}
    if target is not None and ":" not in target:
        if like is not None or named or rule is not None or sets:
            raise ConfigError(
                f"check {target} needs no further functions or settings, got some. Those belong to a function of yours: "
                "write MODULE:NAME."
            )
        return framework_subject(target)
    if target is None and not named:
        raise ConfigError(f"check needs a framework or MODULE:NAME, got neither. Frameworks: {', '.join(ADAPTERS)}.")
    targets: dict[Kind, Any] = {"step": target, **named} if target is not None else dict(named)  # pyright: ignore[reportAssignmentType]
    return subject_of(targets, like or PLAIN_CONVENTION, settings=_settings(sets), rule=_rule(rule))


def _rule(text: str | None) -> Correction | None:
    if text is None:
        return None
    name, *changes = text.split() or [""]
    return correction_from(name, changes)


def _settings(sets: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in sets:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set needs KEY=VALUE, got {each!r}.")
        try:
            found[key] = settings_of(value)
        except (yaml.YAMLError, ValueError):
            raise ConfigError(f"--set {key} needs a value that reads as YAML, got {value!r}.") from None
    return found


def _ask(subject: Subject, laws: list[Law], cases: int, seed: int) -> list[Ruling]:
    from trimtab.check.ask import check

    asked = [
        question
        for law in laws
        for question in law.questions
        if question.kind in subject.functions
        for _ in subject.functions[question.kind].setups
    ]
    with LiveBar(f"checking {subject.name}", max(len(asked), 1)) as bar:

        def progress(what: str) -> None:
            bar.bar.update(bar.task, advance=1, description=what)

        return check(subject, laws=laws, cases=cases, seed=seed, progress=progress)


def _list(laws: list[Law]) -> None:
    from trimtab.check.subject import KIND_NAMES

    rows = [(law.name, law.sentence, law.breaks) for law in laws]
    show.put(show.table(("LAW", "STATEMENT", "IF BROKEN"), rows), "")
    asked = [
        (law.name if place == 0 else "", question.name, KIND_NAMES[question.kind], question.sentence)
        for law in laws
        for place, question in enumerate(law.questions)
    ]
    show.put(show.table(("LAW", "QUESTION", "APPLIES TO", "STATEMENT"), asked))


def _write_scripts(folder: Path, subject: Subject, rulings: list[Ruling]) -> None:
    from trimtab.check.script import script_of

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--scripts needs a folder that can be made, got {folder}: {error.strerror}.") from None
    for ruling in rulings:
        for answer in ruling.broken:
            name = re.sub(r"[^a-z0-9]+", "-", f"{ruling.law.name}-{answer.question.name}-{answer.setup.name}".lower())
            write_file(folder / f"{name.strip('-')}.py", script_of(subject, ruling.law, answer))


def _tell(subject: Subject, rulings: list[Ruling], cases: int, seed: int, *, as_json: bool, as_markdown: bool) -> None:
    from trimtab.check.ask import version_named
    from trimtab.check.report import check_facts, check_markdown
    from trimtab.check.script import script_of

    if as_json:
        facts = check_facts(subject, rulings, cases, seed)
        show.put_raw(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
        return
    if as_markdown:
        show.put_raw(check_markdown(subject, rulings))
        return
    version = version_named(subject)
    show.put(show.heading(f"{subject.name}{f' {version}' if version else ''}"))
    if version is not None and subject.tried and version not in subject.tried:
        show.note(f"The adapter was tried with {subject.name} {', '.join(subject.tried)}; this is {version}.")
    rows = [
        (
            ruling.law.name,
            Text(ruling.ruling, style=RULING_STYLES[ruling.ruling]),
            _explanation(ruling) or ruling.law.sentence,
        )
        for ruling in rulings
    ]
    show.put(show.table(("LAW", "", ""), rows), "")
    for ruling in rulings:
        if ruling.broken:
            show.put(show.heading(f"{ruling.law.name}: {ruling.broken[0].question.sentence}"))
            show.put_raw(script_of(subject, ruling.law, ruling.broken[0]) + "\n")


def _explanation(ruling: Ruling) -> str:
    """What is broken, each with its numbers once; or why the law does not apply."""
    if ruling.ruling != "broken":
        return ruling.why
    seen: dict[str, str] = {}
    for answer in ruling.broken:
        seen.setdefault(answer.question.name, f"{answer.question.name} ({answer.setup.name}): {answer.why}")
    return "\n".join(seen.values())
