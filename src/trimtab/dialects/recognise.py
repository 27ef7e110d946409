"""Which framework a file of settings belongs to, by its programs, its classes and its keys; or which other kind of file it is."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from trimtab.dialects.lookup import count
from trimtab.dialects.registry import COMMANDS, DIALECTS, SIGNATURES
from trimtab.dialects.sources.opening import Contents, contents_of
from trimtab.dialects.sources.purpose import DISTILLATION, EVOLUTION, other_training
from trimtab.dialects.sources.settings import Source
from trimtab.errors import ConfigError, NotSettingsError

OTHERS = (
    ("a GitHub workflow", ("on", "jobs")),
    ("a GitHub workflow", ("True", "jobs")),
    ("a Docker Compose file", ("services",)),
    ("a Kubernetes object", ("apiVersion", "kind")),
    ("a SkyPilot task", ("resources", "run")),
    ("a SkyPilot task", ("resources", "setup")),
    ("an accelerate configuration", ("compute_environment", "distributed_type")),
    ("an accelerate configuration", ("distributed_type", "num_processes")),
    ("a DeepSpeed configuration", ("zero_optimization",)),
    ("a Python project", ("project", "build-system")),
    ("a Python project", ("build-system",)),
    ("a pre-commit configuration", ("repos",)),
    ("a Conda environment", ("channels", "dependencies")),
    ("a documentation site", ("site_name",)),
    ("a Ray cluster", ("cluster_name", "provider")),
    ("a Ray runtime environment", ("working_dir", "env_vars")),
    ("an Anyscale job", ("entrypoint", "compute_config")),
    ("an issue form", ("body", "labels")),
    ("a list of tools", ("tools",)),
    ("a list of interactions", ("interaction",)),
)
"""Kinds of file that are no training settings, by names at their top."""
SHOWN = 6
OTHER_SECTIONS = re.compile(r"(?:.*\.)?(\w*(?:Critic|Reward|Distillation|Optimizer|Profiler)\w*Config)")
"""Classes whose section, in a file of its own, has names of the policy's that mean something else: a critic's `loss_agg_mode`."""
CLASSES = {"_target_", "worker_cls", "env_manager_cls"}
"""Keys whose values are classes by their full name."""
FULL_NAME = re.compile(r"[a-z_]\w*(\.\w+){2,}")
MANY_KEYS = 12
"""Keys beside one of a framework's own that make it a chance."""


@dataclass(frozen=True)
class Evidence:
    """A framework, and by what it shows."""

    framework: str
    why: str


def framework_of(settings: Source, root: str | os.PathLike[str] | None = None) -> str:
    """The framework that settings belong to; refused where none or several could be meant."""
    return recognise(settings, root).framework


def recognise(settings: Source, root: str | os.PathLike[str] | None = None) -> Evidence:
    """The framework that settings belong to and by what it shows: a program or key only it has, else most keys."""
    found = contents_of(settings, lambda keys: max(count(DIALECTS[each].keys, keys) for each in SIGNATURES), root)
    name = os.fspath(settings) if isinstance(settings, str | os.PathLike) else "This"
    refuse_others(found, name)
    return sign(found) or _by_count(found, name)


def _by_count(found: Contents, name: str) -> Evidence:
    counted = {each: count(DIALECTS[each].keys, found.keys, own=True) for each in SIGNATURES}
    best = max(counted.values(), default=0)
    names = [each for each, many in counted.items() if many == best and best > 0]
    names = [each for each in names if SIGNATURES[each].ancestor not in names]
    if len(names) == 1 and best > 1:
        return Evidence(names[0], f"it sets {best} of its keys, more than of any other framework")
    shown = by_roots(found)
    if shown is not None:
        return shown
    if not names or len(found.keys) > MANY_KEYS * best:
        raise without_keys(found, name)
    if len(names) == 1:
        return Evidence(names[0], "it sets one of its keys, and none of any other framework")
    raise ConfigError(
        f"The framework needs to be named, got a file that could be of several: {' and '.join(names)} have as many of its keys. Pass "
        "--from NAME, or write NAME:FILE."
    )


def sign(found: Contents) -> Evidence | None:
    """Whose a file is by what only one framework has; None where nothing shows, or several do."""
    by_key = _by_key(found)
    for program in found.programs:
        names = [each.name for each in SIGNATURES.values() if re.fullmatch(each.programs, program)]
        if len(names) == 1 and (not by_key or names[0] in by_key or not _is_common(program)):
            return Evidence(
                names[0], f"it starts or imports {program.partition(' ')[0] if 'rlhf' not in program else program}"
            )
    by_class = _by_class(found)
    if by_class is not None:
        return by_class
    if not by_key:
        return None
    name, keys = max(by_key.items(), key=lambda each: len(each[1]))
    tied = [other for other, those in by_key.items() if len(those) == len(keys)]
    return Evidence(name, f"it sets {keys[0]}{_as_heirs(name)}") if len(tied) == 1 else None


def _as_heirs(framework: str) -> str:
    """The frameworks built on one, whose files need not show it."""
    heirs = [each.title for each in SIGNATURES.values() if each.ancestor == framework]
    return f" ({' and '.join(heirs)} has this key too)" if heirs else ""


def _by_class(found: Contents) -> Evidence | None:
    """Whose classes or functions a file names, as `_target_: verl.workers.config.ActorConfig`."""
    for key, value in found.keys.items():
        if not isinstance(value, str) or not (key.rpartition(".")[2] in CLASSES or _names_function(key, value)):
            continue
        names = [each.name for each in SIGNATURES.values() if value.partition(".")[0] in each.packages]
        if names:
            return Evidence(
                names[0], f"it names {'the function' if _names_function(key, value) else 'the class'} {value}"
            )
    return None


def _names_function(key: str, value: str) -> bool:
    """Whether a flag names a function by its full name: `--rollout-function-path miles.rollout.x.generate`."""
    return key.endswith("_path") and re.fullmatch(FULL_NAME, value) is not None


def _is_common(program: str) -> bool:
    """Whether others may have a program of that name: `rl`, or a script."""
    return COMMANDS.get(program) == () or program.endswith(".py")


def by_roots(found: Contents) -> Evidence | None:
    """Whose a file is by the names at its top: at least two that one framework's files have, and more than any other's."""
    held = {
        name: [root for root in each.roots if root in (found.top if _has_sections(name) else _values_at_top(found))]
        for name, each in SIGNATURES.items()
        if not each.only_flags
    }
    name, roots = max(held.items(), key=lambda each: len(each[1]))
    tied = [other for other, those in held.items() if len(those) == len(roots)]
    return Evidence(name, f"it has {' and '.join(roots[:3])} at its top") if len(roots) > 1 and len(tied) == 1 else None


def _has_sections(framework: str) -> bool:
    """Whether the settings of a framework stand in sections; where they are flags, a section of the name is another's."""
    return any("." in path for key in DIALECTS[framework].keys for path in key.paths)


def _values_at_top(found: Contents) -> list[str]:
    return [name for name in found.top if name in found.keys]


def _by_key(found: Contents) -> dict[str, list[str]]:
    held = {name: [key for key in found.keys if re.fullmatch(each.own_keys, key)] for name, each in SIGNATURES.items()}
    heirs = {SIGNATURES[name].ancestor for name, keys in held.items() if keys}
    return {name: keys for name, keys in held.items() if keys and name not in heirs}


def refuse_foreign(framework: str, found: Contents, where: str) -> None:
    """Refused where a file is another framework's, or no settings at all. A mapping in hand is taken at its word."""
    if not where:
        return
    refuse_others(found, where.removesuffix(": "))
    shown = sign(found)
    taken = (framework, SIGNATURES[framework].ancestor)
    if shown is not None and shown.framework not in taken and framework not in _by_key(found):
        raise ConfigError(f"{where}this looks like {shown.framework} ({shown.why}). Use --from {shown.framework}.")


def refuse_others(found: Contents, name: str) -> None:
    """Refused where a file is of a kind that holds no settings of ours, or trains in a way without a correction."""
    kind = kind_of_file(found)
    if kind is not None:
        raise NotSettingsError(f"{name} is {kind}, which holds no training settings. Pass the file that does.")
    other = other_training(found.programs, found.keys, found.top)
    if other is not None:
        samples = other.startswith((DISTILLATION, EVOLUTION, "training with", "PPO"))
        why = "whose gradient is not read here" if samples else "which has no sampler to correct for"
        raise NotSettingsError(f"{name} is for {other}, {why}.")


def kind_of_file(found: Contents) -> str | None:
    """What a file is that is no settings, with the names that show it."""
    section = OTHER_SECTIONS.fullmatch(str(found.keys.get("_target_", "")))
    if section is not None:
        return f"the section of a {section[1]}"
    if sign(found) is not None:
        return None
    for kind, names in OTHERS:
        if all(name in found.top for name in names):
            return f"{kind} ({', '.join('on' if name == 'True' else name for name in names)})"
    return None


def without_keys(found: Contents, name: str) -> NotSettingsError:
    """What to say of a file in which no framework finds a key of its own."""
    held = (found.top or tuple(found.keys))[:SHOWN]
    more = f" It sets {', '.join(held)}{' and more' if len(found.top or found.keys) > SHOWN else ''}." if held else ""
    named = ", ".join(each.name for each in found.parents[:SHOWN])
    sent = f" It runs with {named}: pass that file." if named else ""
    return NotSettingsError(
        f"{name} has no settings of a correction, a loss or an advantage of any framework.{sent or more}"
    )
