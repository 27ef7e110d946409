"""Settings files of one framework brought from replaced keys to today's, every other character left as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import yaml

from trimtab.config.correction import Correction
from trimtab.dialects.equivalence import agreement
from trimtab.dialects.framework import Dialect, Given
from trimtab.dialects.lookup import is_theirs, look_up
from trimtab.dialects.reader import read
from trimtab.dialects.registry import dialect_of
from trimtab.dialects.sources.settings import documents, flat_settings
from trimtab.dialects.writing.write import write
from trimtab.dialects.writing.yaml_edits import Document, Edit, rewrite
from trimtab.errors import ConfigError

TODAY = "its keys are today's"
BESIDE = (
    "use_v1",
    "use_decoupled_loss",
    "recompute_logprob",
    "prox_logp_method",
    "use_vllm",
    "enable_old_logprobs_recompute",
)
"""Keys of a correction that only stand by it and are left alone."""
SWITCHES = ("use_decoupled_loss", "recompute_logprob", "use_vllm")
"""Those among them that switch a correction on or off, which a file that only changes its words does not."""


@dataclass(frozen=True)
class Migration:
    """A file brought up to date: its text, the keys that went and came, and why nothing did where nothing did."""

    text: str
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    reason: str = ""

    @property
    def changed(self) -> bool:
        """Whether anything is to be written."""
        return bool(self.removed or self.added)


def migrate(framework: str, text: str) -> Migration:
    """The text of a YAML file, all its documents, with today's keys."""
    dialect = dialect_of(framework)
    parsed = documents(text)
    if not parsed:
        return Migration(text, reason="it is empty")
    edits: list[Edit] = []
    removed: list[str] = []
    added: list[str] = []
    reasons: list[str] = []
    for root, tree in parsed:
        reason = _why_untouched(dialect, tree)
        if reason:
            reasons.append(reason)
            continue
        went, came = _replacement(dialect, cast("Mapping[str, Any]", tree))
        document = Document(text, cast("yaml.MappingNode", root))
        document.replace(went, came)
        edits += document.edits
        removed += went
        added += came
    if not edits:
        return Migration(text, reason=reasons[0])
    result = rewrite(text, edits)
    _check(dialect, [tree for _, tree in parsed], result)
    return Migration(result, tuple(removed), tuple(added))


def _why_untouched(dialect: Dialect, tree: object) -> str:
    """Why a document needs nothing; empty where it does."""
    if not isinstance(tree, Mapping):
        return "it holds no keys"
    keys = flat_settings(cast("Mapping[str, Any]", tree))
    if not is_theirs(dialect, keys):
        return f"{dialect.title} reads none of its keys"
    return "" if dialect.outdated(look_up(dialect, keys)) else TODAY


def _replacement(dialect: Dialect, tree: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """The keys that go, as the user wrote them, and those that come, with their values."""
    before = read(dialect.name, tree, whole=False).correction
    if before is None:
        raise ConfigError(
            f"{dialect.title}: these settings have no correction to keep. See the findings of `trimtab explain`."
        )
    here, asked = flat_settings(tree), look_up(dialect, flat_settings(tree))
    stem = _stem(asked)
    written = flat_settings(write(dialect.name, before).settings).items()
    wanted = {f"{stem}{path}": value for path, value in written if path.rpartition(".")[2] not in SWITCHES}
    came = {path: value for path, value in wanted.items() if path not in here or here[path] != value}
    own = {key.label: key for key in dialect.keys}
    labels = {written: label for label, written in asked.places.items()}
    mine = [
        written for label, written in asked.places.items() if own[label].part == "correction" and label not in BESIDE
    ]
    gone = [written for written in mine if own[labels[written]].legacy]
    if _suffices(dialect, here, gone, before):
        return gone, {}
    went = [written for written in mine if written not in wanted or written in came]
    return went, came


def _suffices(dialect: Dialect, here: Mapping[str, Any], went: list[str], before: Correction) -> bool:
    """Whether what stays already says it, as where a file holds both generations of keys."""
    rest = {path: value for path, value in here.items() if path not in went}
    if not went or not is_theirs(dialect, rest) or not look_up(dialect, rest).speaks_of("correction"):
        return False
    after = read(dialect.name, rest, whole=False).correction
    return after is not None and after == before


def _stem(asked: Given) -> str:
    """What stands above the framework's own names where a file nests them deeper."""
    for label, written in asked.places.items():
        path = asked.path(label)
        if written.endswith(f".{path}"):
            return written[: -len(path)]
    return ""


def _check(dialect: Dialect, before: list[object], text: str) -> None:
    """The new text says the same correction, document by document, and uses nothing that was replaced."""
    after = [tree for _, tree in documents(text)]
    same = len(before) == len(after) and all(
        _says_the_same(dialect, one, other) for one, other in zip(before, after, strict=True)
    )
    if not same:
        raise ConfigError(f"{dialect.title}: the rewritten keys would not mean the same. Rewrite this file by hand.")


def _says_the_same(dialect: Dialect, one: object, other: object) -> bool:
    if not isinstance(one, Mapping) or not isinstance(other, Mapping) or one == other:
        return one == other
    trees = [cast("Mapping[str, Any]", each) for each in (one, other)]
    if _why_untouched(dialect, trees[1]) == "":
        return False
    own = {written for tree in trees for written in _own(dialect, tree)}
    rests = [{key: value for key, value in flat_settings(tree).items() if key not in own} for tree in trees]
    first, second = (read(dialect.name, tree, whole=False).correction for tree in trees)
    return rests[0] == rests[1] and first is not None and second is not None and agreement(first, second).weights


def _own(dialect: Dialect, tree: Mapping[str, Any]) -> list[str]:
    """What the user calls the keys of the correction, empty sections and what they leave behind included."""
    keys = flat_settings(tree)
    written = [*look_up(dialect, keys).places.values()]
    return written + [key for key, value in keys.items() if value is None or value == {}]
