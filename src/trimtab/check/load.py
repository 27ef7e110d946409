"""Which functions are checked: a framework's own, or those a user names, called as one of the frameworks calls its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trimtab.check.frameworks import areal, openrlhf, plain, skyrl, swift, trimtab, trl, verl
from trimtab.check.subject import Adapter, Asked, Kind, Setup, Subject
from trimtab.config.correction import Correction
from trimtab.errors import ConfigError, UnknownNameError, nearest

ADAPTERS: dict[str, Subject] = {
    each.name: each
    for each in (
        verl.SUBJECT,
        trl.SUBJECT,
        skyrl.SUBJECT,
        areal.SUBJECT,
        openrlhf.SUBJECT,
        swift.SUBJECT,
        trimtab.SUBJECT,
    )
}
"""Those whose own functions are known, by name."""

PLAIN_CONVENTION = "plain"
_PLAIN: dict[Kind, Adapter] = {
    "step": plain.plain_step,
    "advantages": plain.plain_advantages,
    "ages": plain.plain_ages,
}
CONVENTIONS = (PLAIN_CONVENTION, *ADAPTERS)
"""What `--like` can name."""


def framework_subject(name: str) -> Subject:
    """A framework by its name."""
    if name not in ADAPTERS:
        raise UnknownNameError(f"check needs a framework or MODULE:NAME, got {name!r}. {nearest(name, ADAPTERS)}")
    return ADAPTERS[name]


def subject_of(
    targets: Mapping[Kind, str],
    like: str = PLAIN_CONVENTION,
    *,
    settings: Mapping[str, Any] | None = None,
    rule: Correction | None = None,
) -> Subject:
    """A user's functions by MODULE:NAME, called as `like` says. `rule` is the correction they should apply."""
    if like not in CONVENTIONS:
        raise UnknownNameError(f"--like needs a calling convention, got {like!r}. {nearest(like, CONVENTIONS)}")
    base = None if like == PLAIN_CONVENTION else ADAPTERS[like]
    functions: dict[Kind, Asked] = {}
    for kind, target in targets.items():
        _check_target(target)
        functions[kind] = Asked(target, _adapter(kind, base, like), _setups(kind, base, settings or {}, rule))
    name = " and ".join(targets.values())
    if base is None:
        return Subject(name=name, functions=functions)
    return replace(base, name=name, functions=functions, distribution=None, tried=(), not_asked={}, known={})


def _check_target(target: str) -> None:
    module, colon, name = target.partition(":")
    parts = [*module.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ConfigError(
            f"check needs MODULE:NAME, got {target!r}. Write for example my_package.losses:my_loss, or a framework: "
            f"{', '.join(ADAPTERS)}."
        )


def _adapter(kind: Kind, base: Subject | None, like: str) -> Adapter:
    if base is None:
        return _PLAIN[kind]
    if kind not in base.functions:
        raise ConfigError(f"--like {like} has no convention for {kind}. Use --like plain.")
    return base.functions[kind].adapter


def _setups(
    kind: Kind, base: Subject | None, settings: Mapping[str, Any], rule: Correction | None
) -> tuple[Setup, ...]:
    """The settings a user gave; none: those under which the framework's own function is asked."""
    if kind == "step" and (settings or rule is not None or base is None):
        named = ", ".join(f"{key}={value}" for key, value in settings.items())
        return (Setup(named or "defaults", dict(settings), rule),)
    return (Setup("defaults"),) if base is None else base.functions[kind].setups
