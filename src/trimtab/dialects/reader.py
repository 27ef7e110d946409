"""`read`: a framework's settings as ours, with findings."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from trimtab.config.correction import Correction
from trimtab.dialects.bounds import bound_findings, clip_findings
from trimtab.dialects.framework import Dialect, Given, Remark
from trimtab.dialects.given import Unreadable
from trimtab.dialects.lookup import count, look_up
from trimtab.dialects.parts import OFF, AdvantagePart, LossPart, as_group_estimator
from trimtab.dialects.reading import Finding, PartName, Reading, Refusal
from trimtab.dialects.recognise import refuse_foreign, without_keys
from trimtab.dialects.registry import dialect_of
from trimtab.dialects.risks import RunFile, risk_findings
from trimtab.dialects.sources.inherit import MissingParent
from trimtab.dialects.sources.opening import Contents, contents_of, names_set, with_overrides
from trimtab.dialects.sources.purpose import answers_clients
from trimtab.dialects.sources.settings import Source
from trimtab.dialects.sources.unknown import Unknown
from trimtab.dialects.topics import age_findings, bits_findings, group_findings, sampling_findings
from trimtab.dialects.unread import environment_findings, gone_findings, idle_findings, unread_findings, unused_findings
from trimtab.errors import ConfigError, ConfigWarning, NotSettingsError, UnknownNameError, nearest

FEW_KEYS = 4
"""A file with so few keys, none of them known, is one with a misspelt key rather than one of another kind."""
OWN_PROGRAM = "Not one of {title}'s own programs: a loss or an advantage estimator that it replaces is not shown here."

OWN_SCRIPT = (
    "The defaults shown are those of {title}'s own program; what this script sets or computes itself is not shown. Pass the script to "
    "read its settings."
)


def read(
    framework: str,
    settings: Source,
    documented: bool = False,
    *,
    width: int | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    version: str = "",
    whole: bool | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Reading:
    """What a framework computes under these settings, in our terms.

    `settings` are its users' own keys: a mapping, a YAML, TOML, JSON, shell or Python file, or command-line words; a whole file
    or the section that matters. `documented`: what its documentation promises instead, where that differs. `width`: how wide the
    padded answers are, for the few reductions that divide by it. `overrides`: keys of the framework's on top of the file, as a
    mapping or as `KEY=VALUE` words. `version`: the release of the framework, where several can be read; else the newest of them. `whole`:
    whether these are all the settings of a run, so that the framework's defaults hold for the rest, those that switch a part on or
    off included; a section alone is read as it acts. Left out, the names of the keys decide. `root`: the folder below which files are
    read that a file builds on; the repository that it is in where left out.

    A part that cannot be said (`Reading.refused`) leaves the others standing; where nothing is left, that is an error, but for a
    whole file of the framework's in which there is nothing to be said with `overrides`.
    """
    dialect = dialect_of(framework)
    is_chosen, version = bool(version), dialect.release(version)
    found = contents_of(settings, lambda keys: count(dialect.keys, keys), root)
    before = {**dialect.implied_by(found.programs, found.keys, version), **found.keys}
    keys = with_overrides(before, overrides)
    where = f"{os.fspath(settings)}: " if isinstance(settings, str | os.PathLike) else ""
    refuse_foreign(dialect.name, found, where)
    asked = _look_up(dialect, keys, found, where, documented=documented, width=width, version=version)
    if not is_chosen and (later := _shown_release(dialect, asked)) != version:
        asked = _look_up(dialect, keys, found, where, documented=documented, width=width, version=later)
    parents = [each.name for each in found.parents if _matters(dialect, each)]
    asked = replace(asked, is_run=whole, builds_on_others=bool(parents))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)  # doubts become findings
        reading, errors, acting = _reading(dialect, asked, parents)
        reading = replace(reading, defaults=_defaults(asked, reading, where, found))
    if errors and not _says(reading) and not (where and _stands(dialect, asked, found, errors)):
        first = next(iter(errors.values()))
        raise type(first)(f"{where}{_with_title(dialect, first)}")
    risks, topics = _risks(asked, reading, found, where)
    named = {key for risk in risks for key in risk.key.split(", ")}
    reading = replace(
        reading, findings=tuple(each for each in reading.findings if not _is_said_by(each, named, topics))
    )
    by_topic = {
        "age": age_findings(asked, "" if where.endswith(".py: ") else _started(found, where)),
        "groups": group_findings(asked),
        "sampling": sampling_findings(asked),
        "bits": bits_findings(asked),
    }
    said = (
        *risks,
        *found.findings,
        *reading.findings,
        *unread_findings(asked),
        *environment_findings(found.environment),
        *(each for topic, notes in by_topic.items() if topic not in topics for each in notes),
        *(unused_findings(asked) if reading.defaults is None else ()),
        *(
            ()
            if any(map(answers_clients, found.programs))
            else idle_findings(asked, reading, acting, is_command=bool(found.programs))
        ),
        *gone_findings(asked, reading, acting),
        *_by_default(asked, reading, where, found),
    )
    told = {each.key for each in said}
    unread = {name: there for name, there in names_set(before, overrides).items() if name not in told}
    is_run = bool(where) or asked.whole
    findings = (*_set_in_vain(asked, unread), *said)
    return replace(reading, findings=findings, uncorrected=reading.uncorrected and is_run)


def _risks(asked: Given, reading: Reading, found: Contents, where: str) -> tuple[list[Finding], set[str]]:
    """The risks of a run, and the topics whose notes they stand for; none of settings that are no file, or a part of one."""
    if not where:
        return [], set()
    said = list(risk_findings(RunFile(asked, reading, found.programs, where.removesuffix(": "))))
    return [finding for finding, _ in said], {topic for _, topic in said}


def _is_said_by(finding: Finding, named: Set[str], topics: Set[str]) -> bool:
    """Whether risks of these topics say of the same keys what a finding says."""
    return bool(topics - {""}) and finding.level in ("note", "surprise") and finding.key in named


def _shown_release(dialect: Dialect, asked: Given) -> str:
    """The release that settings show: the one read by default, or the one that brought their youngest key."""
    shown = [key.since for key in dialect.keys if key.since and asked.has(key.label)]
    return max([asked.version, *shown], key=dialect.position)


def _set_in_vain(asked: Given, names: Mapping[str, bool]) -> Iterator[Finding]:
    """Keys that were set on top and that no rule reads: refused where the framework cannot have them, else said aloud."""
    dialect = asked.dialect
    for name, was_there in names.items():
        if name in asked.places.values() or name in dialect.closed or name in dialect.sections:
            continue
        if was_there:
            yield Finding(
                name, "note", "Set on top of the file, but not interpreted here: nothing that is shown changes."
            )
            continue
        last = name.rpartition(".")[2]
        close = nearest(last, [path.rpartition(".")[2] for key in dialect.keys for path in key.paths])
        close = f" {close}" if close.startswith("Did you mean") else ""
        if not _may_have(dialect, name):
            raise UnknownNameError(
                f"{dialect.title} has no key {name!r} that --set could reach, so it would change nothing.{close} Write the framework's "
                "full name, or leave it out."
            )
        text = f"Set on top of the file, but no key of this name is interpreted here: nothing that is shown changes. Check its name.{close}"
        yield Finding(name, "surprise", text)


def _may_have(dialect: Dialect, name: str) -> bool:
    """Whether a framework may have a key of that name beside those that are read: in one of its sections, or among its flags."""
    paths = [path for key in dialect.keys for path in key.paths]
    if "." not in name:
        return name in dialect.signature.roots or any("." not in path for path in paths)
    sections = {part for path in paths for part in path.split(".")[:-1]} | set(dialect.signature.roots)
    return name.partition(".")[0] in sections


def _stands(dialect: Dialect, asked: Given, found: Contents, errors: Mapping[PartName, ConfigError]) -> bool:
    """Whether a file of which nothing could be read is one all the same: the framework's own, and nothing to be said with --set."""
    whole = asked.whole or dialect.starts(found.programs)
    is_open = any(isinstance(value, Unknown) for value in asked.values.values())
    return whole and ("correction" not in errors or bool(found.parents) or not is_open)


def _matters(dialect: Dialect, parent: MissingParent) -> bool:
    """Whether a file that is not there could say something of a correction: by the section that it fills."""
    inside = f"{parent.package}."
    return not parent.package or any(f"{path}.".startswith(inside) for key in dialect.keys for path in key.paths)


def _defaults(asked: Given, reading: Reading, where: str, found: Contents) -> Reading | None:
    """The loss and the advantage of which a whole file says nothing, as the framework has them where it is told nothing."""
    dialect, refused = asked.dialect, {each.part for each in reading.refused}
    whole = asked.whole or dialect.starts(found.programs)
    if not where or not whole or found.parents or _is_of_others(dialect, _started(found, where)):
        return None
    rules: dict[PartName, Callable[[], object]] = {}
    if reading.loss is None and dialect.loss_of is not None:
        rules["loss"] = partial(dialect.loss_of, asked)
    if reading.advantage is None and dialect.advantage_of is not None:
        rules["advantage"] = partial(_advantage, dialect.advantage_of, asked)
    parts: dict[str, Any] = {}
    for part, rule in rules.items():
        if part not in refused and not asked.speaks_of(part):
            with suppress(ConfigError):  # what needs to be said and is not
                parts |= vars(rule())
    return Reading(framework=dialect.name, **parts) if parts else None


def _advantage(rule: Callable[[Given], AdvantagePart], asked: Given) -> AdvantagePart:
    return as_group_estimator(rule(asked))


def _is_of_others(dialect: Dialect, program: str) -> bool:
    """Whether a program is a recipe or an example, which may put a loss or an estimator in the framework's place."""
    is_known = bool(program) and re.fullmatch(dialect.signature.programs, program) is not None
    return is_known and re.fullmatch(dialect.entry_points, program) is None


def _started(found: Contents, where: str) -> str:
    """The program that a command starts; nothing for a script that is the file itself."""
    program = found.programs[0] if found.programs else ""
    return program if os.path.basename(where.removesuffix(": ")) != os.path.basename(program) else ""


def _by_default(asked: Given, reading: Reading, where: str, found: Contents) -> Iterator[Finding]:
    """What there is to say about files that are not there, keys that belong to no part, and a file without any key of ours."""
    for each in found.parents:
        if _matters(asked.dialect, each):
            yield Finding(
                "defaults",
                "surprise",
                f"Builds on {each.name}, {each.why}: its settings are unknown.",
            )
    program = _started(found, where)
    if _is_of_others(asked.dialect, program):
        is_script = program.endswith(".py") and not where.endswith(".py: ")
        text = OWN_SCRIPT if is_script else OWN_PROGRAM
        yield Finding(program, "surprise" if is_script else "note", text.format(title=asked.dialect.title))
    for problem in asked.problems:
        if problem.part == "other":
            yield Finding(asked.dialect.title, "surprise", str(problem.error))
    if where and not found.parents:
        yield from _left_to_defaults(asked, reading)


def _left_to_defaults(asked: Given, reading: Reading) -> Iterator[Finding]:
    """Which parts a file says nothing of, though the framework computes them."""
    title, refused = asked.dialect.title, {each.part for each in reading.refused}
    default = reading.defaults or Reading(asked.dialect.name)
    if not any(map(asked.speaks_of, ("correction", "loss", "advantage"))):
        if not asked.closed_section and not refused:
            text = f"No correction, loss or advantage settings in the file: {title}'s defaults apply."
            yield Finding("defaults", "note", text)
        return
    parts = {"loss": (reading.loss, default.loss), "advantage": (reading.advantage, default.advantage)}
    silent = {name: values[1] for name, values in parts.items() if values[0] is None and not asked.speaks_of(name)}  # pyright: ignore[reportArgumentType]
    for is_shown, where in ((True, ""), (False, " (not shown)")):
        named = [name for name, value in silent.items() if name not in refused and (value is not None) == is_shown]
        if named:
            defaults = "default applies" if len(named) == 1 else "defaults apply"
            text = f"No {' or '.join(named)} settings in the file: {title}'s {defaults}{where}."
            yield Finding("defaults", "note", text)


def _look_up(
    dialect: Dialect,
    keys: Mapping[str, Any],
    found: Contents,
    where: str,
    *,
    documented: bool,
    width: int | None,
    version: str = "",
) -> Given:
    elsewhere = _beside_sections(dialect, found) if where else ()
    whole = bool(where) and (dialect.is_whole(keys) or dialect.starts(found.programs))
    only_starts = bool(found.parents) and not found.top and not count(dialect.keys, keys)
    try:
        return look_up(
            dialect,
            keys,
            documented=documented,
            width=width,
            partial=True,
            whole=whole and not only_starts,
            elsewhere=elsewhere,
            version=version,
        )
    except UnknownNameError:
        if only_starts:
            raise NotSettingsError(
                f"{where}this starts {dialect.title} with the settings of "
                f"{', '.join(each.name for each in found.parents)}. Pass that file."
            ) from None
        if where and len(keys) > FEW_KEYS and not count(dialect.keys, keys):
            raise without_keys(found, where.removesuffix(": ")) from None
        raise


def _beside_sections(dialect: Dialect, found: Contents) -> set[str]:
    """Names at the top of a file that also has sections of the framework's: `group_size` beside `actor` is none of its keys."""
    sections = {key.partition(".")[0] for key in found.keys if "." in key} & set(dialect.signature.roots)
    return {name for name in found.top if name in found.keys} if sections else set()


def _with_title(dialect: Dialect, error: ConfigError) -> str:
    return str(error) if str(error).startswith(dialect.title) else f"{dialect.title}: {error}"


def _says(reading: Reading) -> bool:
    """Whether any part was read."""
    parts = (reading.correction, reading.loss, reading.reduction, reading.kl, reading.entropy, reading.advantage)
    return any(part is not None for part in parts) or bool(reading.shaping)


def _reading(
    dialect: Dialect, asked: Given, parents: list[str]
) -> tuple[Reading, Mapping[PartName, ConfigError], Set[str]]:
    """What each part says, why those that say nothing do not, and the keys that the rules of the others asked for, which are all
    that can change a reading; `parents`: files they build on and that are not known."""
    errors: dict[PartName, ConfigError] = {}
    acting: set[str] = set()

    def part(name: PartName, rule: Callable[[Given], Any], otherwise: Any) -> Any:
        watched, trace = asked.traced()
        try:
            for problem in asked.problems:
                if problem.part == name:
                    raise problem.error
            said = rule(watched)
            acting.update(trace)
            return said
        except ConfigError as error:
            errors[name] = error
            return otherwise

    silent = not asked.speaks_of("correction") and not asked.closed_section
    rule = part("correction", lambda given: _correction(dialect, given, parents, silent), None)
    unsaid = silent and bool(asked.places)
    loss_of = dialect.loss_of if asked.speaks_of("loss") or dialect.is_loss else None
    loss = part("loss", lambda given: loss_of(given) if loss_of else LossPart(), LossPart())
    advantage_of = dialect.advantage_of if asked.speaks_of("advantage") else None
    advantage = part(
        "advantage",
        lambda given: as_group_estimator(advantage_of(given)) if advantage_of else AdvantagePart(),
        AdvantagePart(),
    )
    shown = dialect.version_of(asked)
    reading = Reading(
        framework=dialect.name,
        correction=None if unsaid and rule == OFF else rule,
        uncorrected=unsaid and rule == OFF,
        **vars(loss),
        **vars(advantage),
        logged_kl=dialect.logged_kl(asked),
        version=shown.name if shown else asked.version,
        findings=(
            *_remarks(asked),
            *_of_newer(dialect, asked),
            *bound_findings(asked, rule),
            *clip_findings(asked),
        ),
        refused=tuple(Refusal(name, _with_title(dialect, error)) for name, error in errors.items()),
        said=tuple(asked.path(label) for label in asked.values),
        values={name: each for name, each in asked.values.items() if not isinstance(each, Unreadable | Unknown)},
    )
    return reading, errors, acting


def _correction(dialect: Dialect, asked: Given, parents: list[str], silent: bool) -> Correction | None:
    """The correction, which is not off where a file that is not there may switch it on."""
    rule = None if parents and silent else dialect.correction_of(asked)
    if parents and (rule is None or (_is_off(rule) and not asked.switches_off("correction"))):
        raise ConfigError(
            f"the correction depends on {', '.join(parents)}, which is not available. Put the file beside this one, or set its keys "
            "with --set KEY=VALUE."
        )
    return rule


def _is_off(rule: Correction) -> bool:
    return not rule.gates and rule.weight == OFF.weight


def _remarks(asked: Given) -> list[Finding]:
    return [remark.finding(asked) for remark in asked.dialect.remarks if _applies(remark, asked)]


def _of_newer(dialect: Dialect, asked: Given) -> Iterator[Finding]:
    """What there is to say of a key that came after the version read and is not read."""
    shown = dialect.version_of(asked)
    if shown is not None and not shown.is_read:
        key = asked.written(*shown.keys) or ""
        text = (
            f"{key.rpartition('.')[2]} is a key of {dialect.title} {shown.name}. Read as {dialect.version}, so what this key changes is "
            "not shown."
        )
        yield Finding(key, "surprise", text)
    for each in dialect.keys:
        if each.since and asked.has(each.label) and not asked.since(each.since):
            text = f"{each.label} was added in {dialect.title} {each.since}. Read as {asked.version}, which does not have it."
            yield Finding(asked.place(each.label), "surprise", text)


def _applies(remark: Remark, asked: Given) -> bool:
    try:
        return remark.holds(asked)
    except ConfigError:  # it looks at a value that is not known; the part that needs it says so
        return False
