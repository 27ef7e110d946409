"""Settings files of one framework brought from replaced keys to today's, every other character left as it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import yaml

from trimtab.dialects.frameworks import dialect, read
from trimtab.dialects.keys import Dialect, Given, given
from trimtab.dialects.proposals import nested
from trimtab.dialects.same import compared
from trimtab.dialects.settings import flat
from trimtab.dialects.writing import write
from trimtab.errors import ConfigError


@dataclass(frozen=True)
class Migration:
    """A file rewritten: its text, and the keys that went and came."""

    text: str
    removed: tuple[str, ...]
    added: tuple[str, ...]


def migrated(framework: str, text: str) -> Migration | None:
    """The text of a YAML file with today's keys; None where it already has them, or says nothing of them."""
    speech = dialect(framework)
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        return None
    tree = cast("dict[str, Any]", yaml.safe_load(text))
    asked = given(speech, flat(tree))
    if not speech.outdated(asked):
        return None
    before = read(framework, tree).correction
    if before is None:
        raise ConfigError(
            f"{speech.title}: these settings have no correction to keep. See the findings of `trimtab explain`."
        )
    wanted = flat(write(framework, before).settings)
    here = flat(tree)
    changed = {path: value for path, value in wanted.items() if path not in here or here[path] != value}
    removed = _replaced(speech, asked, {path: value for path, value in wanted.items() if path not in changed})
    lines = _Lines(text, root)
    lines.replace(removed, changed)
    after = read(framework, yaml.safe_load(lines.text)).correction
    if after is None or not compared(before, after).weights:
        raise ConfigError(f"{speech.title}: the rewritten keys would not mean the same. Rewrite this file by hand.")
    return Migration(lines.text, tuple(removed), tuple(changed))


def _replaced(speech: Dialect, asked: Given, stays: dict[str, Any]) -> list[str]:
    """What the user wrote about the correction that does not stay as it is; keys that only stand by are left alone."""
    own = {key.label: key for key in speech.keys}
    beside = {
        "use_v1",
        "use_decoupled_loss",
        "recompute_logprob",
        "prox_logp_method",
        "use_vllm",
        "enable_old_logprobs_recompute",
    }
    return [
        written
        for label, written in asked.places.items()
        if own[label].part == "correction" and label not in beside and written not in stays
    ]


class _Lines:
    """A YAML text edited line by line, by the places its parser saw."""

    def __init__(self, text: str, root: yaml.MappingNode) -> None:
        self._lines = text.splitlines(keepends=True)
        self._root = root

    @property
    def text(self) -> str:
        return "".join(self._lines)

    def replace(self, removed: list[str], added: dict[str, Any]) -> None:
        """Take keys out and put others where the first of them stood."""
        spans = sorted(self._span(path) for path in removed)
        parent = removed[0].rpartition(".")[0]
        at, indent = spans[0][0], spans[0][2]
        comments = [self._comment(line) for line, _, _ in spans]
        block = _block(parent, added)
        new = [f"{' ' * indent}{line}\n" for line in block]
        if new:
            kept = "; ".join(comment for comment in comments if comment)
            new[0] = f"{new[0].rstrip()}  # {kept}\n" if kept else new[0]
        for start, end, _ in reversed(spans):
            del self._lines[start:end]
        self._lines[at:at] = new

    def _span(self, path: str) -> tuple[int, int, int]:
        """First line, line after the last, and indentation of a key."""
        node: yaml.Node = self._root
        found: yaml.Node | None = None
        for name in path.split("."):
            if not isinstance(node, yaml.MappingNode) or node.flow_style:
                raise ConfigError(f"{path} stands inside braces; write one key per line, then it can be rewritten.")
            pairs = cast("list[tuple[yaml.ScalarNode, yaml.Node]]", node.value)
            found, node = next((key, value) for key, value in pairs if key.value == name)
        assert found is not None
        start = found.start_mark
        end = node.end_mark
        last = end.line if end.column == 0 and end.line > start.line else end.line + 1
        return start.line, last, start.column

    def _comment(self, line: int) -> str:
        _, sign, comment = self._lines[line].partition(" #")
        return comment.strip() if sign else ""


def _block(parent: str, added: dict[str, Any]) -> list[str]:
    """The new keys as YAML lines, relative to the mapping that held the removed ones."""
    if not added:
        return []
    prefix = f"{parent}." if parent else ""
    outside = [path for path in added if not path.startswith(prefix)]
    if outside:
        raise ConfigError(f"{outside[0]} belongs elsewhere in the file; move the section there by hand.")
    inner = nested({path.removeprefix(prefix): value for path, value in added.items()})
    text = yaml.safe_dump(inner, sort_keys=False, default_flow_style=False, allow_unicode=True)
    return text.splitlines()
