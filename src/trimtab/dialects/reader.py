"""`read`: a framework's settings as ours, with findings."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from trimtab.dialects.bounds import bound_findings
from trimtab.dialects.by_group import by_group
from trimtab.dialects.dialect import Dialect, Given, Remark, Unreadable
from trimtab.dialects.files.opening import Contents, contents_of, with_overrides
from trimtab.dialects.files.shape import refuse_foreign
from trimtab.dialects.files.unknown import Unknown
from trimtab.dialects.frameworks import dialect_of
from trimtab.dialects.lookup import count, look_up
from trimtab.dialects.objectives import AdvantagePart, LossPart
from trimtab.dialects.parts import OFF
from trimtab.dialects.reading import Finding, Reading, Refusal
from trimtab.dialects.settings import Source
from trimtab.dialects.unread import unread_findings
from trimtab.errors import ConfigError, ConfigWarning, UnknownNameError


def read(
    framework: str,
    settings: Source,
    documented: bool = False,
    *,
    width: int | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
) -> Reading:
    """What a framework computes under these settings, in our terms.

    `settings` are its users' own keys: a mapping, a YAML, TOML, JSON, shell or Python file, or command-line words; a whole file
    or the section that matters. `documented`: what its documentation promises instead, where that differs. `width`: how wide the
    padded answers are, for the few reductions that divide by it. `overrides`: keys of the framework's on top of the file, as a
    mapping or as `KEY=VALUE` words.

    A part that cannot be said (`Reading.refused`) leaves the others standing; where nothing is left, that is an error, but for a
    whole file that leaves its correction off.
    """
    dialect = dialect_of(framework)
    found = contents_of(settings, lambda keys: count(dialect, keys))
    keys = with_overrides(found.keys, overrides)
    where = f"{os.fspath(settings)}: " if isinstance(settings, str | os.PathLike) else ""
    refuse_foreign(dialect.name, found, where)
    asked = _look_up(dialect, keys, found, where, documented, width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)  # doubts become findings
        reading, errors = _reading(dialect, asked)
    if errors and not _says(reading) and not (where and asked.whole and "correction" not in errors):
        first = next(iter(errors.values()))
        raise type(first)(f"{where}{_with_title(dialect, first)}")
    return replace(reading, findings=(*found.findings, *reading.findings, *unread_findings(asked)))


def _look_up(
    dialect: Dialect, keys: Mapping[str, Any], found: Contents, where: str, documented: bool, width: int | None
) -> Given:
    try:
        return look_up(dialect, keys, documented=documented, width=width, partial=True)
    except UnknownNameError:
        if found.parents and not count(dialect, keys):
            raise ConfigError(
                f"{where}this starts {dialect.title} with the settings of {', '.join(found.parents)}. Pass that file."
            ) from None
        raise


def _with_title(dialect: Dialect, error: ConfigError) -> str:
    return str(error) if str(error).startswith(dialect.title) else f"{dialect.title}: {error}"


def _says(reading: Reading) -> bool:
    """Whether any part was read."""
    parts = (reading.correction, reading.loss, reading.reduction, reading.kl, reading.entropy, reading.advantage)
    return any(part is not None for part in parts) or bool(reading.shaping)


def _reading(dialect: Dialect, asked: Given) -> tuple[Reading, Mapping[Any, ConfigError]]:
    """What each part says, and why those that say nothing do not."""
    errors: dict[Literal["correction", "loss", "advantage"], ConfigError] = {}

    def part(name: Literal["correction", "loss", "advantage"], rule: Callable[[], Any], otherwise: Any) -> Any:
        try:
            for problem in asked.problems:
                if problem.part == name:
                    raise problem.error
            return rule()
        except ConfigError as error:
            errors[name] = error
            return otherwise

    rule = part("correction", lambda: dialect.correction_of(asked), None)
    silent = asked.places and not asked.speaks_of("correction") and not asked.closed_section
    loss_of = dialect.loss_of if asked.speaks_of("loss") or dialect.is_loss else None
    loss = part("loss", lambda: loss_of(asked) if loss_of else LossPart(), LossPart())
    advantage_of = dialect.advantage_of if asked.speaks_of("advantage") else None
    advantage = part(
        "advantage", lambda: by_group(advantage_of(asked)) if advantage_of else AdvantagePart(), AdvantagePart()
    )
    reading = Reading(
        framework=dialect.name,
        correction=None if silent and rule == OFF else rule,
        **vars(loss),
        **vars(advantage),
        logged_kl=dialect.logged_kl(asked),
        findings=(*_remarks(asked), *bound_findings(asked, rule)),
        refused=tuple(Refusal(name, _with_title(dialect, error)) for name, error in errors.items()),
        said=tuple(asked.path(label) for label in asked.values),
        values={name: each for name, each in asked.values.items() if not isinstance(each, Unreadable | Unknown)},
    )
    return reading, errors


def _remarks(asked: Given) -> list[Finding]:
    return [remark.finding(asked) for remark in asked.dialect.remarks if _applies(remark, asked)]


def _applies(remark: Remark, asked: Given) -> bool:
    try:
        return remark.when(asked)
    except ConfigError:  # it looks at a value that is not known; the part that needs it says so
        return False
