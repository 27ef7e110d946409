"""What holds at one point of a Python script, and what holds where several ways through it meet.

Everything a script sets is a slot: a name of a scope, an argument of its parser, a key, an object of settings. A branch writes into
a layer of its own; where branches meet, what they agree on stays and what they set differently is unknown.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from trimtab.dialects.sources.unknown import Holes, Unknown

BRANCHES = "which branches of the script set differently"
REPEATED = "which a loop of the script changes"
MOST_WORK = 500_000
"""Values looked at, those inside others and the letters of long texts counted with them."""
MOST_SIZE = 20_000
"""Values inside one, counted anew wherever it holds one twice."""
GONE = object()
"""What a slot holds that a way never wrote."""
Slot = tuple[Any, ...]
Layer = dict[Slot, Any]


class WorkError(Exception):
    """A script with more to work out than any that starts training."""


@dataclass(frozen=True)
class MadeConfig:
    """An object of settings that a script makes: the class, the line of the call, what it is given."""

    kind: str
    line: int
    keys: Mapping[str, Any]


@dataclass(frozen=True)
class Made(Unknown):
    """An object of settings as a value: unknown as a whole, its settings known by its number."""

    number: int = 0


@dataclass
class Work:
    """A running count of what is worked out, and the sizes of the values made so far."""

    count: int = 0
    sizes: dict[int, tuple[Any, int]] = field(default_factory=dict[int, tuple[Any, int]])
    """By the identity of a value, which is kept so that no other takes it over."""

    def charge(self, many: int = 1) -> None:
        """Count some of it; refused where it grows out of all measure."""
        self.count += many
        if self.count > MOST_WORK:
            raise WorkError(f"more than {MOST_WORK} values to work out; look for one that holds itself several times")

    def size(self, value: Any) -> int:
        """How many values a value is, every text of a hundred letters counted as one more."""
        if isinstance(value, str):
            return 1 + len(value) // 100
        if not isinstance(value, list | dict):
            return 1
        known = self.sizes.get(id(cast("object", value)))
        if known is None:
            held = cast("dict[Any, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
            known = value, 1 + sum(map(self.size, held))
            self.charge(1 + len(cast("list[Any]", value)))
            self.sizes[id(cast("object", value))] = known
        return known[1]

    def same(self, one: Any, other: Any) -> bool:
        """Whether two values are equal, of one kind: 1 is no True."""
        if one is other:
            return True
        size = self.size(one)
        if type(one) is not type(other) or size != self.size(other):
            return False
        self.charge(size)
        return bool(one == other)


class Flow:
    """The slots at one point of a script, in layers: the innermost branch first."""

    def __init__(self, holes: Holes, *, by_defaults: bool = True) -> None:
        self.holes, self.work = holes, Work()
        self.by_defaults, self.is_testing = by_defaults, False
        """Whether a test of a parser's argument is taken as it comes out without any; and whether one is being looked at."""
        self.slots: ChainMap[Slot, Any] = ChainMap()
        self.scopes: tuple[int, ...] = (0,)
        """The scopes in which a name is looked up, the innermost first."""
        self.results: dict[int, Any] = {}
        """What calls come to that were followed or make an object, by the identity of their node."""
        self._last = 0

    def __getitem__(self, slot: Slot) -> Any:
        return self.slots.get(slot, GONE)

    def __setitem__(self, slot: Slot, value: Any) -> None:
        self.work.charge(self.work.size(value) // 100 + 1)
        self.slots[slot] = value

    def number(self) -> int:
        """A number that no other scope or object has."""
        self._last += 1
        return self._last

    def of(self, space: str) -> dict[str, Any]:
        """Every slot of one space that is written."""
        self.work.charge(len(self.slots))
        return {slot[1]: value for slot, value in self.slots.items() if slot[0] == space and value is not GONE}

    # ── names ──

    def name(self, name: str) -> Any:
        """What a name is bound to; GONE where the script has not bound it."""
        for scope in self.scopes:
            found = self["name", scope, name]
            if found is not GONE:
                return found
        return GONE

    def bind(self, name: str, value: Any) -> None:
        """Bind a name in the innermost scope, or where `global` sends it."""
        is_global = self["global", self.scopes[0], name] is True
        self["name", self.scopes[-1] if is_global else self.scopes[0], name] = value

    def rebind(self, held: Any, value: Any) -> None:
        """Put a changed list or mapping in place of what it was, under every name that holds it."""
        self.work.charge(len(self.slots))
        for slot in [slot for slot, each in self.slots.items() if each is held and slot[0] == "name"]:
            self[slot] = value

    # ── objects of settings ──

    def make(self, kind: str, line: int, keys: Mapping[str, Any]) -> Made:
        """A new object of settings."""
        number = self.number()
        self["config", number] = MadeConfig(kind, line, dict(keys))
        self["made", kind] = (*self.made(kind), number)
        return Made(f"{kind}(…)", line, number=number)

    def made(self, kind: str) -> tuple[int, ...]:
        """The numbers of the objects of a kind, in the order in which they are made."""
        found = self["made", kind]
        return () if found is GONE else cast("tuple[int, ...]", found)

    def config(self, number: int) -> MadeConfig:
        """What an object holds by now."""
        return cast("MadeConfig", self["config", number])

    def put(self, number: int, keys: Mapping[str, Any]) -> None:
        """Set some of what an object holds."""
        held = self.config(number)
        self.work.charge(len(held.keys))
        self["config", number] = replace(held, keys={**held.keys, **keys})

    # ── ways ──

    @contextmanager
    def apart(self) -> Generator[Layer]:
        """A layer for one way; gone from the flow when it ends."""
        self.work.charge()
        before, self.slots = self.slots, self.slots.new_child()
        try:
            yield cast("Layer", self.slots.maps[0])
        finally:
            self.slots = before

    @property
    def depth(self) -> int:
        """How many layers lie over one another."""
        return len(self.slots.maps)

    def since(self, depth: int) -> Layer:
        """What was written in the layers above a depth, as one: a way that leaves a loop or function half-way."""
        found: Layer = {}
        for layer in reversed(self.slots.maps[: len(self.slots.maps) - depth]):
            found.update(cast("Layer", layer))
        self.work.charge(len(found))
        return found

    def merge(self, ways: list[Layer], line: int, why: str = BRANCHES) -> None:
        """Go on with what holds after every one of these ways."""
        top = cast("Layer", self.slots.maps[0])
        if len(ways) == 1:
            top.update(ways[0])
            return
        self.work.charge(sum(map(len, ways)))
        together = Meeting(self, ways, line, why)
        found = {slot: together.slot(slot) for slot in dict.fromkeys(slot for way in ways for slot in way)}
        together.join_unnamed()
        for way in ways:  # what each object holds where it was made in one way alone
            top.update({slot: value for slot, value in way.items() if slot[0] == "config" and self[slot] is GONE})
        top.update({slot: value for slot, value in found.items() if value is not GONE})
        for made, config in together.objects.values():
            top["config", made.number] = config
        for kind, numbers in together.made().items():
            top["made", kind] = numbers
        top.update({("used", number): True for number in together.used()})


class Meeting:
    """The place where several ways through a script come together."""

    def __init__(self, flow: Flow, ways: list[Layer], line: int, why: str) -> None:
        self.flow, self.ways, self.line, self.why = flow, ways, line, why
        self.objects: dict[tuple[int | None, ...], tuple[Made, MadeConfig]] = {}
        """Objects that stand for one made in each way, by the numbers of those."""

    def slot(self, slot: Slot) -> Any:
        """What a slot holds from here on; GONE for those that are counted apart."""
        space, name = slot[0], str(slot[-1])
        values = [way.get(slot, self.flow[slot]) for way in self.ways]
        if space == "name":
            return self.value(values, name, bound=True)
        if space == "config":
            configs = [cast("MadeConfig", each) for each in values if each is not GONE]
            is_older = len(configs) == len(values)
            return (
                replace(configs[0], keys=self.keys(configs[0].kind, [each.keys for each in configs]))
                if is_older
                else GONE
            )
        if space in ("made", "used"):
            return GONE
        return (
            next(each for each in values if each is not GONE)
            if space in ("handed", "global")
            else self.value(values, name)
        )

    def value(self, values: list[Any], name: str, *, bound: bool = False) -> Any:
        """One value for that of each way: itself where they agree, a text or list as far as it goes, else unknown.

        `bound`: a way that does not set it does not matter, since nothing after it can use a name that is not bound.
        """
        said = [each for each in values if each is not GONE] if bound else values
        if not said:
            return GONE
        if all(self.flow.work.same(each, said[0]) for each in said[1:]):
            return said[0]
        if any(each is GONE for each in said):
            return Unknown(name, self.line, self.why)
        if all(isinstance(each, Made) and each.name == said[0].name for each in said):
            return self.object(values)
        if all(isinstance(each, list) for each in said):
            return self._list(said, name)
        if all(isinstance(each, str) for each in said):
            return self._text(said, name)
        return (
            self.keys("", said) if all(isinstance(each, dict) for each in said) else Unknown(name, self.line, self.why)
        )

    def keys(self, kind: str, several: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
        """The settings that several ways give one object: one that only some of them set is unknown too."""
        return {
            key: self.value([each.get(key, GONE) for each in several], f"{kind}({key}=…)" if kind else str(key))
            for key in dict.fromkeys(name for each in several for name in each)
        }

    def object(self, values: list[Any]) -> Made:
        """One object for those that the ways made; each is looked up in its own way."""
        numbers = tuple(each.number if isinstance(each, Made) else None for each in values)
        if numbers not in self.objects:
            configs = [
                self._config(way, number) for way, number in zip(self.ways, numbers, strict=True) if number is not None
            ]
            self.objects[numbers] = self._joined(configs)
        return self.objects[numbers][0]

    def _joined(self, configs: list[MadeConfig]) -> tuple[Made, MadeConfig]:
        first = configs[0]
        joined = replace(first, keys=self.keys(first.kind, [each.keys for each in configs]))
        return Made(f"{first.kind}(…)", first.line, number=self.flow.number()), joined

    def _config(self, way: Layer, number: int) -> MadeConfig:
        return cast("MadeConfig", way.get(("config", number), self.flow["config", number]))

    def join_unnamed(self) -> None:
        """Objects of a kind that several ways make and that no name holds: one from here on too."""
        for kind in dict.fromkeys(slot[1] for way in self.ways for slot in way if slot[0] == "made"):
            new = [self._unnamed(way, kind) for way in self.ways]
            if sum(map(bool, new)) > 1:
                configs = [
                    alike([self._config(way, each) for each in numbers], self.flow)
                    for way, numbers in zip(self.ways, new, strict=True)
                    if numbers
                ]
                self.objects[tuple(each for numbers in new for each in numbers)] = self._joined(configs)

    def _unnamed(self, way: Layer, kind: str) -> list[int]:
        """The objects of a kind that a way made and for which none stands yet."""
        taken = {each for numbers in self.objects for each in numbers}
        before = self.flow.made(kind)
        return [each for each in way.get(("made", kind), ()) if each not in taken and each not in before]

    def made(self) -> dict[str, tuple[int, ...]]:
        """The objects of every kind from here on."""
        found: dict[str, tuple[int, ...]] = {}
        for kind in dict.fromkeys(slot[1] for way in self.ways for slot in way if slot[0] == "made"):
            single = [each for way in self.ways for each in self._unnamed(way, kind)]
            joined = [made.number for made, config in self.objects.values() if config.kind == kind]
            found[kind] = tuple(dict.fromkeys((*self.flow.made(kind), *single, *joined)))
        for made, config in self.objects.values():
            if config.kind not in found:
                found[config.kind] = (*self.flow.made(config.kind), made.number)
        return found

    def used(self) -> set[int]:
        """The objects that are handed to a trainer in some way, and those that stand for one of them."""
        used = {slot[1] for way in self.ways for slot in way if slot[0] == "used"}
        for numbers, (made, _) in self.objects.items():
            if any(each in used or self.flow["used", each] is True for each in numbers):
                used.add(made.number)
        return used

    def _list(self, lists: list[list[Any]], name: str) -> list[Any]:
        """What several lists begin with, and a gap for the rest."""
        shared: list[Any] = []
        for each in zip(*lists, strict=False):
            if not all(self.flow.work.same(one, each[0]) for one in each[1:]):
                break
            shared.append(each[0])
        rest = tuple(word for words in lists for word in words[len(shared) :] if isinstance(word, str))
        return [*shared, Unknown(name, self.line, self.why, several=True, maybe=rest)]

    def _text(self, texts: list[str], name: str) -> Any:
        """Words of a command that one way adds to: those of all, and a gap. Any other text is whole or not known."""
        start = min(texts, key=len)
        ends = [each[len(start) :] for each in texts if each.startswith(start)]
        is_words = all(not end or end[0].isspace() or start[-1:].isspace() for end in ends)
        if len(ends) < len(texts) or not is_words or not is_command(start):
            return Unknown(name, self.line, self.why)
        rest = tuple(word for end in ends for word in end.split())
        return f"{start} {self.flow.holes.hole(name, self.line, self.why, several=True, maybe=rest)} "


def is_command(text: str) -> bool:
    """Whether a text is words for a command line rather than a value."""
    return "--" in text or re.search(r"\w\.\w+=", text) is not None


def alike(configs: list[MadeConfig], flow: Flow) -> MadeConfig:
    """One object for several of a kind made one after the other, of which it is not seen which one counts."""
    if len(configs) == 1:
        return configs[0]
    lines = sorted({each.line for each in configs})
    why = (
        f"which lines {', '.join(map(str, lines))} set differently"
        if len(lines) > 1
        else f"which line {lines[0]} sets differently each time it is reached"
    )
    meeting = Meeting(flow, [{} for _ in configs], configs[0].line, why)
    return replace(configs[0], keys=meeting.keys(configs[0].kind, [each.keys for each in configs]))
