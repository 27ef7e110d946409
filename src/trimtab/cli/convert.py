"""`trimtab convert`: other frameworks' files in our words, and in one another's."""

from __future__ import annotations

import difflib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from trimtab.cli import show
from trimtab.cli.explain_file import refuse_folder
from trimtab.cli.findings import Lines, RemarkLine, from_findings
from trimtab.cli.show import READ_IN_PART, WRITTEN_IN_PART, write_file
from trimtab.config.safe_yaml import text_of
from trimtab.config.visible import on_one_line
from trimtab.dialects import DIALECTS, Reading, Writing, read, write
from trimtab.dialects.reading import Omission
from trimtab.dialects.recognise import framework_of
from trimtab.dialects.registry import dialect_of
from trimtab.dialects.sources.formats import YAML
from trimtab.dialects.sources.opening import open_file
from trimtab.dialects.writing.messages import offer_words
from trimtab.dialects.writing.migrate import TODAY, migrate
from trimtab.errors import ConfigError, TrimtabError, UnknownNameError, nearest

FRAMEWORKS = ", ".join(DIALECTS)
PARTS = ("correction", "loss", "advantage")


FilesArgument = Annotated[
    list[Path], typer.Argument(metavar="FILE…", help="Settings files; with --in-place also folders of them.")
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="NAME",
        help=f"The framework the files are written for: {FRAMEWORKS}. Recognised by their keys if you leave it out.",
    ),
]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="NAME", help="The framework to convert to. Without it you get part of a `trimtab train` file."
    ),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Refuse, and write nothing, if the target does not support all of it.")
]
NearestOption = Annotated[
    bool,
    typer.Option(
        "--nearest", help="If the target does not support the correction, write the nearest one that it does."
    ),
]
OnlyOption = Annotated[
    str | None,
    typer.Option(
        "--only", metavar="PARTS", help="Convert only these parts: correction, loss, advantage, joined by commas."
    ),
]
DocumentedOption = Annotated[
    bool,
    typer.Option("--documented", help="Read what the documentation promises, where the code does something else."),
]
CheckOption = Annotated[bool, typer.Option("--check", help="Exit with code 1 if a finding is a defect.")]
AllOption = Annotated[bool, typer.Option("--all", help="Print notes in full, not only their first line.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the source on top of its file; repeatable."),
]
VersionOption = Annotated[
    str,
    typer.Option(
        "--version",
        metavar="X.Y.Z",
        help="The release of the source's framework, where several can be read. The newest if you leave it out.",
    ),
]
RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="Read files that the source builds on anywhere below this folder. Its repository if you leave it out.",
    ),
]
InPlaceOption = Annotated[
    bool,
    typer.Option("--in-place", help="Rewrite keys the framework has replaced; comments and layout stay as they are."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="With --in-place: show what would change, and change nothing.")
]


def convert(
    files: FilesArgument,
    source: FromOption = None,
    target: ToOption = None,
    strict: StrictOption = False,
    take_nearest: NearestOption = False,
    only: OnlyOption = None,
    documented: DocumentedOption = False,
    check: CheckOption = False,
    everything: AllOption = False,
    version: VersionOption = "",
    sets: SetOption = None,
    root: RootOption = None,
    in_place: InPlaceOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Convert a framework's settings to another framework's, or to ours.

    Reads YAML, TOML, JSON, launch scripts (.sh) and Python scripts. Nothing in them is run, and the environment is not read. If a
    file leaves something open (an argument, a variable it never sets) and it matters, say it with --set.

    The new settings go to stdout, remarks to stderr. Correction, loss (with reduction, KL and entropy terms) and advantage are
    converted. The result is read back as a whole run of the target, with its defaults for what is not written, and compared with
    the source. What the target does not support, or computes differently, is left out or written as near as it comes; each such
    thing is listed with what it changes in numbers.

    Exit codes: 0 everything was converted, and `trimtab compare` of the source and the result gives 0. 1 --check found a defect.
    2 an error, or nothing could be converted. 3 a part of the source could not be read. 4 the target supports only part of it,
    or computes part of it differently.
    """
    parts = _parts(only)
    if target is not None:
        target = dialect_of(target).name
    if in_place:
        if source is None or (target is not None and target != dialect_of(source).name):
            raise ConfigError("--in-place needs --from NAME, and no other framework after --to. Convert single files.")
        migrate_files(source, files, dry_run)
        return
    codes: set[int] = set()
    for file in files:
        refuse_folder(file, "convert without --in-place")
        opened = open_file(file, root)
        framework = source or framework_of(opened)
        reading = _only(read(framework, opened, documented, overrides=sets or (), version=version), parts)
        codes |= _convert(file, reading, target, strict=strict, take_nearest=take_nearest, everything=everything)
    for code in (1, READ_IN_PART, WRITTEN_IN_PART):
        if code in codes and (code != 1 or check):
            raise typer.Exit(code)


def _convert(
    file: Path, reading: Reading, target: str | None, *, strict: bool, take_nearest: bool, everything: bool
) -> set[int]:
    """Print one file's settings, then what there is to say; the exit codes that this alone would have."""
    page = show.console(stderr=True)
    remarks = [*_not_read(reading), *from_findings(reading.findings)]
    if (reading.correction, reading.loss, reading.reduction, reading.advantage) == (None,) * 4:
        page.print(Lines(remarks, everything))
        raise ConfigError(f"{file}: nothing was read that could be converted. See the remarks above.")
    result = Writing("trimtab", {})
    if target is None:
        show.put_raw(_ours(file, reading))
    else:
        try:
            result = write(target, reading, strict=strict, nearest=take_nearest)
        except ConfigError:
            page.print(Lines(remarks, everything))
            raise
        show.put_raw(as_yaml(result.settings))
    sys.stdout.flush()
    more = [each for each in result.findings if each not in reading.findings]
    found = from_findings((*reading.findings, *more))
    page.print(Lines([*_not_read(reading), *_left_out(reading, result), *found], everything))
    codes = {1} if any(each.label == "defect" for each in found) else set[int]()
    return codes | ({READ_IN_PART} if reading.refused else set()) | ({WRITTEN_IN_PART} if result.omissions else set())


def _not_read(reading: Reading) -> list[RemarkLine]:
    return [RemarkLine("not read", each.part, each.text) for each in reading.refused]


def _left_out(reading: Reading, result: Writing) -> list[RemarkLine]:
    """What the target cannot say, what that changes in numbers, and what it could say instead."""
    if not result.omissions:
        return []
    from trimtab.cli.differences import sizes

    dialect = dialect_of(result.framework)
    found = [
        RemarkLine(each.label, each.key or each.part, f"{_loss_in_words(dialect.title, each)}.")
        for each in result.omissions
    ]
    changed = sizes(reading, read(dialect.name, result.settings, whole=True), {each.part for each in result.omissions})
    found += [RemarkLine("in numbers", part, f"{text}.") for part, text in changed.items()]
    offers = [offer for each in result.omissions for offer in each.offers[:1]]
    return found + [RemarkLine("instead", "", f"--nearest writes {offer_words(offer)}.") for offer in offers]


def _loss_in_words(title: str, lost: Omission) -> str:
    """An omission as a sentence: of a correction it names only what is not supported."""
    is_name = lost.part == "correction" and lost.whole and not lost.text.startswith(title)
    return f"{title} does not support {lost.text}" if is_name else lost.text


def _parts(only: str | None) -> tuple[str, ...]:
    named = tuple(part.strip() for part in only.split(",")) if only is not None else PARTS
    for part in named:
        if part not in PARTS:
            raise UnknownNameError(f"--only needs correction, loss or advantage, got {part!r}. {nearest(part, PARTS)}")
    return named


def _only(reading: Reading, parts: tuple[str, ...]) -> Reading:
    """A reading with the other parts left out."""
    if "correction" not in parts:
        reading = replace(reading, correction=None, uncorrected=False)
    if "loss" not in parts:
        reading = replace(reading, loss=None, reduction=None, kl=None, entropy=None)
    if "advantage" not in parts:
        reading = replace(reading, advantage=None, shaping=(), advantage_norm=None, reward_kl=None, advantage_clip=None)
    return replace(reading, refused=tuple(each for each in reading.refused if each.part in parts))


def _ours(file: Path, reading: Reading) -> str:
    """Everything read, under the names of a `trimtab train` file; what those have no name for, as comments."""
    dialect = dialect_of(reading.framework)
    lines = [
        f"# {on_one_line(file.name)}, read as {dialect.title} {reading.version or dialect.version}: part of a file for `trimtab train`."
    ]
    for name, value in _nameless(reading).items():
        lines.append(f"# {name}, which such a file has no name for: {value}")
    parts = {
        "correction": reading.correction,
        "loss": reading.loss,
        "reduction": reading.reduction,
        "kl": reading.kl,
        "entropy_bonus": reading.entropy,
        "advantage": reading.advantage,
        "shaping": reading.shaping[0] if len(reading.shaping) == 1 else None,
    }
    held = {name: value.settings() for name, value in parts.items() if value is not None}
    return "\n".join(lines) + "\n" + as_yaml(held)


def _nameless(reading: Reading) -> dict[str, str]:
    """What was read and is handed to functions of ours by the caller."""
    found: dict[str, Any] = {}
    if reading.kl is not None and reading.kl_to != "reference":
        found["kl to"] = reading.kl_to
    if reading.loss is not None and reading.advantage_scale != 1:
        found["scale of the advantages"] = reading.advantage_scale
    if reading.advantage_clip is not None:
        found["advantages held within ±"] = reading.advantage_clip
    if len(reading.shaping) > 1:
        found["shaping in steps"] = [step.settings() for step in reading.shaping]
    for name, value in {"advantage norm": reading.advantage_norm, "KL in the reward": reading.reward_kl}.items():
        if value is not None:
            found[name] = value.settings()
    return {
        name: yaml.safe_dump(value, default_flow_style=True, width=1000).split("\n")[0] for name, value in found.items()
    }


def as_yaml(settings: Any) -> str:
    """Settings as their users keep them."""
    return yaml.safe_dump(settings, sort_keys=False, default_flow_style=False, allow_unicode=True)


def migrate_files(framework: str, places: list[Path], dry_run: bool) -> None:
    """Rewrite, or show, every file that uses replaced keys; say how many did, did not, and could not, and why."""
    count = {"changed": 0, "same": 0, "passed": 0, "refused": 0}
    for file in _yaml_files(places):
        try:
            text = text_of(file)
            result = migrate(framework, text)
            if result.changed and not dry_run:
                write_file(file, result.text)
        except TrimtabError as error:
            count["refused"] += 1
            show.complain(_about(file, str(error)))
            continue
        if result.changed:
            count["changed"] += 1
            show.put_raw(_diff(file, text, result.text))
        elif result.reason == TODAY:
            count["same"] += 1
        else:
            count["passed"] += 1
            show.note(f"{file} is left as it is: {result.reason}.")
    done = "would be rewritten" if dry_run else "rewritten"
    counted = f"{count['changed']} {done}, {count['same']} need nothing, {count['refused']} refused"
    others = f", {count['passed']} not {dialect_of(framework).title} settings" if count["passed"] else ""
    show.put_raw(f"{counted}{others}.\n")
    if count["refused"]:
        raise typer.Exit(1)


def _about(file: Path, problem: str) -> str:
    if problem.startswith(str(file)):
        return problem
    own = problem.removeprefix("The text ")
    return f"{file} {own}" if own != problem else f"{file} is left as it is: {problem}"


def _diff(file: Path, before: str, after: str) -> str:
    """A unified diff; a last line without a break says so, as diff does."""
    name = on_one_line(str(file))
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), name, name)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _yaml_files(places: list[Path]) -> list[Path]:
    """The files named, and those under the folders named, each once however many links lead to it."""
    found: dict[str, Path] = {}
    for place in places:
        if not os.path.lexists(place):
            raise ConfigError(f"{place} needs to exist, got nothing there. Check the path.")
        inside = sorted(each for each in place.rglob("*") if each.suffix in YAML.endings) if place.is_dir() else []
        for file in inside if place.is_dir() else [place]:
            if not file.is_dir():
                found.setdefault(os.path.realpath(file), file)
    return list(found.values())
