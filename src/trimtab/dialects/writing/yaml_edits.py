"""A YAML text edited where its parser saw each key; every character that need not change stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import yaml

from trimtab.dialects.writing.candidates import as_tree
from trimtab.errors import ConfigError

Pair = tuple[yaml.Node, yaml.Node]
Edit = tuple[int, int, str]
"""From, to, and what stands there instead."""


@dataclass(frozen=True)
class Found:
    """A key in the text: the mapping that holds it, its place there, and the full name of that mapping."""

    mapping: yaml.MappingNode
    place: int
    above: str

    @property
    def key(self) -> yaml.Node:
        """Its name."""
        return pairs(self.mapping)[self.place][0]

    @property
    def value(self) -> yaml.Node:
        """What it says."""
        return pairs(self.mapping)[self.place][1]


def pairs(node: yaml.MappingNode) -> list[Pair]:
    """The keys and values of a mapping, as written."""
    return cast("list[Pair]", node.value)


class Document:
    """One document of a YAML text, and the edits it collects."""

    def __init__(self, text: str, root: yaml.MappingNode) -> None:
        self._text, self._root = text, root
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._anchored = set(_anchored_ids(root))
        self.edits: list[Edit] = []

    def replace(self, removed: Iterable[str], added: dict[str, Any]) -> None:
        """Take keys out and put others where the first of them stood, or at the end of the section they belong to."""
        gone = sorted((self._find(path) for path in removed), key=lambda each: _start(each.key))
        groups: dict[int, tuple[yaml.MappingNode, dict[str, Any]]] = {}
        for path, value in added.items():
            mapping, inner = self._home(path)
            groups.setdefault(id(mapping), (mapping, {}))[1][inner] = value
        for found in self._now_empty(gone, set(groups)):
            mapping, new = groups.pop(id(found.mapping), (found.mapping, {}))
            self._take_out(found, [each for each in gone if each.mapping is mapping], new)
        for mapping, new in groups.values():
            self._append(mapping, new)

    # ── finding ──

    def _find(self, path: str) -> Found:
        """Where a key stands; refused where changing it would change something else too."""
        mapping, above, rest = self._root, "", path
        while True:
            self._refuse_shared(mapping, path)
            step = next((place for place, (key, _) in enumerate(pairs(mapping)) if _leads(key, rest)), None)
            if step is None:
                raise ConfigError(f"{path} comes from an anchor by way of <<; rewrite it there by hand.")
            key, value = pairs(mapping)[step]
            name = str(key.value)
            if name == rest:
                self._refuse_shared(value, path)
                return Found(mapping, step, above)
            above, rest = f"{above}{name}.", rest[len(name) + 1 :]
            assert isinstance(value, yaml.MappingNode)
            mapping = value

    def _refuse_shared(self, node: yaml.Node, path: str) -> None:
        if id(node) in self._anchored:
            line = node.start_mark.line + 1 if node.start_mark else 0
            raise ConfigError(
                f"{path} belongs to an anchor that others use too (line {line}); rewrite it there by hand."
            )

    def _home(self, path: str) -> tuple[yaml.MappingNode, str]:
        """The deepest mapping that is there for a new key, and the rest of its name."""
        mapping, rest = self._root, path
        while True:
            step = next((pair for pair in pairs(mapping) if _leads(pair[0], rest)), None)
            if step is None or not isinstance(step[1], yaml.MappingNode) or str(step[0].value) == rest:
                return mapping, rest
            self._refuse_shared(step[1], path)
            mapping, rest = step[1], rest[len(str(step[0].value)) + 1 :]

    def _now_empty(self, gone: list[Found], homes: set[int]) -> list[Found]:
        """One key per mapping that loses some; a section that loses all its keys and gains none goes itself."""
        while True:
            held: dict[int, list[Found]] = {}
            for found in gone:
                held.setdefault(id(found.mapping), []).append(found)
            bare = [
                lost
                for place, lost in held.items()
                if place not in homes and len(lost) == len(pairs(lost[0].mapping)) and lost[0].above
            ]
            if not bare:
                return [lost[0] for lost in held.values()]
            gone[:] = [each for each in gone if each not in bare[0]]
            gone.append(self._find(bare[0][0].above.rstrip(".")))

    # ── changing ──

    def _take_out(self, first: Found, gone: list[Found], new: dict[str, Any]) -> None:
        gone = gone or [first]
        flow = bool(first.mapping.flow_style)
        if flow:
            self._take_out_of_braces(gone, new)
            return
        spans = [self._lines(each) for each in gone]
        comments = [comment for *_, comment in spans if comment]
        indent = " " * _column(first.key)
        lines = self._block(new)
        if lines:
            lines[0] += f"  # {'; '.join(comments)}" if comments else ""
        else:
            lines = [f"# {comment}" for comment in comments]
        text = "".join(f"{indent}{line}{self._newline}" for line in lines)
        for place, (start, end, _) in enumerate(spans):
            self.edits.append((start, end, text if place == 0 else ""))

    def _take_out_of_braces(self, gone: list[Found], new: dict[str, Any]) -> None:
        """The first key becomes the new ones; the others go with a comma each."""
        for found in gone if not new else gone[1:]:
            self.edits.append((*self._braced_span(found), ""))
        if new:
            self.edits.append((_start(gone[0].key), _end(gone[0].value), _in_braces(new)))

    def _braced_span(self, found: Found) -> tuple[int, int]:
        """A key between braces with the comma that goes with it; a comma before a comment stays, which YAML allows."""
        whole = pairs(found.mapping)
        start, end = _start(found.key), _end(found.value)
        if found.place + 1 < len(whole):
            after = self._text[end : _start(whole[found.place + 1][0])]
            if not after.lstrip().startswith(","):
                raise ConfigError(
                    f"{found.above}{found.key.value} has a comment before its comma; write it without braces."
                )
            end += after.index(",") + 1
            return start, end + len(self._text[end:]) - len(self._text[end:].lstrip(" "))
        before = _end(whole[found.place - 1][1]) if found.place else start
        return (start if "#" in self._text[before:start] else before), end

    def _append(self, mapping: yaml.MappingNode, new: dict[str, Any]) -> None:
        last = pairs(mapping)[-1] if pairs(mapping) else None
        if mapping.flow_style:
            at = _end(last[1]) if last else _start(mapping) + 1
            self.edits.append((at, at, f"{', ' if last else ''}{_in_braces(new)}"))
            return
        assert last is not None
        at = self._line_end(_end(last[1]))
        lead = "" if self._text[:at].endswith("\n") else self._newline
        indent = " " * _column(last[0])
        lines = self._block(new)
        self.edits.append((at, at, lead + "".join(f"{indent}{line}{self._newline}" for line in lines)))

    def _lines(self, found: Found) -> tuple[int, int, str]:
        """From where to where the lines of a key go, and the comment at the end of the last."""
        start = _start(found.key)
        begin = self._text.rfind("\n", 0, start) + 1
        stop = _end(found.value)
        end = self._line_end(stop)
        rest = self._text[stop:end].strip()
        if self._text[begin:start].strip("\ufeff \t") or (rest and not rest.startswith("#")):
            raise ConfigError(
                f"{found.above}{found.key.value} shares its line; write one key per line, then try again."
            )
        return begin, end, rest.lstrip("#").strip()

    def _line_end(self, at: int) -> int:
        if at and self._text[at - 1] == "\n":
            return at
        found = self._text.find("\n", at)
        return len(self._text) if found < 0 else found + 1

    def _block(self, new: dict[str, Any]) -> list[str]:
        if not new:
            return []
        step = _step(self._root) or 2
        text = yaml.safe_dump(as_tree(new), sort_keys=False, default_flow_style=False, allow_unicode=True, indent=step)
        return text.splitlines()


def rewrite(text: str, edits: Iterable[Edit]) -> str:
    """The text with every edit made; whether it ends with a line break stays as it was."""
    result = text
    for start, end, new in sorted(edits, reverse=True):
        result = result[:start] + new + result[end:]
    return result if text.endswith("\n") else result.rstrip("\r\n")


def _leads(key: yaml.Node, path: str) -> bool:
    name = str(key.value)
    return path == name or path.startswith(f"{name}.")


def _start(node: yaml.Node) -> int:
    return node.start_mark.index if node.start_mark else 0


def _column(node: yaml.Node) -> int:
    return node.start_mark.column if node.start_mark else 0


def _end(node: yaml.Node) -> int:
    """Where a value's own characters end: a block ends with its last value, not where the next key begins."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last: Any = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return node.end_mark.index if node.end_mark else 0


def _step(root: yaml.MappingNode) -> int | None:
    """How far the file indents a section."""
    for key, value in pairs(root):
        if isinstance(value, yaml.MappingNode) and not value.flow_style and pairs(value):
            return _column(pairs(value)[0][0]) - _column(key)
    return None


def _in_braces(new: dict[str, Any]) -> str:
    text = yaml.safe_dump(as_tree(new), sort_keys=False, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.strip()[1:-1]


def _anchored_ids(root: yaml.Node) -> Iterator[int]:
    """Nodes that stand in more than one place."""
    seen: set[int] = set()
    pending: list[yaml.Node] = [root]
    while pending:
        node = pending.pop()
        if id(node) in seen:
            yield id(node)
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            pending += [each for pair in pairs(node) for each in pair]
        elif isinstance(node, yaml.SequenceNode):
            pending += cast("list[yaml.Node]", node.value)
