"""Every exception trimtab raises, as one tree.

TrimtabError
├── ConfigError (ValueError)        a setting that cannot mean anything
│   ├── UnknownNameError            a field, preset or value that does not exist; names the nearest one
│   ├── UnknownMetricError (KeyError)  a metric that this call does not have; names the nearest one
│   └── ConfigFileError             a file that cannot be read as settings
│       └── NotSettingsError        a file of another kind: a workflow, a cluster, a recipe of data
├── InputError (ValueError)         tensors that do not fit together; raised before any arithmetic
├── FrameworkError (ImportError)    a framework that a plug-in needs: absent, or of a version it was not tried with
└── RunError (RuntimeError)         a training run that cannot start or go on
    ├── RecordError                 a run directory or saved batch that cannot be written or read
    │   └── InUseError              a run directory that another process writes
    └── CheckpointError             a checkpoint that cannot be written or read

ConfigWarning (UserWarning)         a setting that is legal and probably not meant
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping


class TrimtabError(Exception):
    """The root: `except TrimtabError` catches everything trimtab raises on purpose."""


class ConfigError(TrimtabError, ValueError):
    """A setting that cannot mean anything."""


class UnknownNameError(ConfigError):
    """A name that does not exist where it was used."""


class UnknownMetricError(UnknownNameError, KeyError):
    """A metric that this call does not have."""

    def __str__(self) -> str:  # a KeyError shows its argument's repr
        return Exception.__str__(self)


class ConfigFileError(ConfigError):
    """A file that cannot be read as settings."""


class NotSettingsError(ConfigFileError):
    """A file of another kind, told apart from settings that cannot be read."""


class InputError(TrimtabError, ValueError):
    """Tensors that do not fit together."""


class FrameworkError(TrimtabError, ImportError):
    """A framework that a plug-in needs: absent, or of a version it was not tried with."""


class RunError(TrimtabError, RuntimeError):
    """A training run that cannot start or go on."""


class RecordError(RunError):
    """A run directory or saved batch that cannot be written or read."""


class InUseError(RecordError):
    """A run directory that another process writes."""


class CheckpointError(RunError):
    """A checkpoint that cannot be written or read."""


class ConfigWarning(UserWarning):
    """A setting that is legal and probably not meant."""


def nearest(name: object, known: Iterable[str], meant: Mapping[str, str] | None = None) -> str:
    """A sentence that offers the nearest known name, or lists them all when none is near.

    `meant`: what words of the field stand for, so that a near spelling is not offered that computes something else.
    """
    names = list(known)
    word = re.sub(r"[\s_]+", "-", str(name).strip().lower())
    if word in names:
        return f"Did you mean {word!r}?"
    if meant and word in meant:
        return meant[word]
    if ends := [each for each in names if each.rpartition("/")[2] == word and "/" in each]:
        return f"Did you mean {' or '.join(map(repr, ends))}?"
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(names)}." if names else "There is nothing to choose from."
