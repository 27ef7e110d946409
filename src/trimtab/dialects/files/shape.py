"""What kind of file this is: whose settings by the programs it starts and the keys only one framework has, or no settings at all."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trimtab.dialects.files.opening import Contents
from trimtab.dialects.frameworks import DIALECTS
from trimtab.errors import ConfigError, ConfigFileError

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
    ("an Anyscale job", ("entrypoint", "compute_config")),
    ("an issue form", ("body", "labels")),
)
"""Kinds of file that are no training settings, by names at their top."""


@dataclass(frozen=True)
class Evidence:
    """A framework, and by what it shows."""

    framework: str
    why: str


def sign(found: Contents) -> Evidence | None:
    """Whose a file is by what only one framework has; None where nothing shows, or several do."""
    by_key = _by_key(found)
    for program in found.programs:
        names = [each.name for each in DIALECTS.values() if re.fullmatch(each.programs, program)]
        if len(names) == 1 and (not by_key or names[0] in by_key or len(program) > len("rl")):
            return Evidence(
                names[0], f"it starts or imports {program.partition(' ')[0] if 'rlhf' not in program else program}"
            )
    if not by_key:
        return None
    name, keys = max(by_key.items(), key=lambda each: len(each[1]))
    tied = [other for other, those in by_key.items() if len(those) == len(keys)]
    return Evidence(name, f"it sets {keys[0]}") if len(tied) == 1 else None


def _by_key(found: Contents) -> dict[str, list[str]]:
    held = {name: [key for key in found.keys if re.fullmatch(each.own_keys, key)] for name, each in DIALECTS.items()}
    return {name: keys for name, keys in held.items() if keys}


def refuse_foreign(framework: str, found: Contents, where: str) -> None:
    """Refused where a file is another framework's, or no settings at all. A mapping in hand is taken at its word."""
    if not where:
        return
    shown = sign(found)
    if shown is not None and shown.framework != framework and framework not in _by_key(found):
        raise ConfigError(f"{where}this looks like {shown.framework} ({shown.why}). Use --from {shown.framework}.")
    kind = kind_of_file(found)
    if shown is None and kind is not None:
        raise ConfigFileError(f"{where}this is {kind}, which holds no training settings. Pass the file that does.")


def kind_of_file(found: Contents) -> str | None:
    """What a file is that is no settings, with the names that show it."""
    for kind, names in OTHERS:
        if all(name in found.top for name in names):
            return f"{kind} ({', '.join('on' if name == 'True' else name for name in names)})"
    return None
