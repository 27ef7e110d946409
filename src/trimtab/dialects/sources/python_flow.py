"""What holds at one point of a Python script, and what holds where several ways through it meet.

Everything a script sets is a slot of one mapping: a name of a scope, an argument of its parser, a key, an object of settings. A branch
goes on with a copy; where branches meet, what they agree on stays and what they set differently is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
State = dict[tuple[Any, ...], Any]


class WorkError(Exception):
    """A script with more to work out than any that starts training."""


@dataclass(frozen=True)
class MadeConfig:
    """An object of settings that a script makes: the class, the line of the call, what it is given, whether a trainer takes it."""

    kind: str
    line: int
    keys: Mapping[str, Any]
    is_used: bool = False


@dataclass(frozen=True)
class Made(Unknown):
    """One of these objects of settings as a value, several where branches make it; its settings are known by their numbers."""

    numbers: tuple[int, ...] = ()


class Parsed(Unknown):
    """What a parser of arguments returned: unknown as a whole, its attributes known by their defaults."""


@dataclass(frozen=True)
class PythonFunction(Unknown):
    """A function of the script, the scopes that it looks names up in, and the values of its defaults."""

    node: Any = None
    scopes: tuple[int, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)
    is_generator: bool = False


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
    """A script on the way through it."""

    def __init__(self, holes: Holes, follow: Callable[..., Any], *, by_defaults: bool = True) -> None:
        self.holes, self.work, self.follow = holes, Work(), follow
        """`follow`: what a call of a function of the script comes to."""
        self.by_defaults, self.is_testing = by_defaults, False
        """Whether a test of a parser's argument is taken as it comes out without any; and whether one is being looked at."""
        self.state: State = {}
        self.scopes: tuple[int, ...] = (0,)
        """The scopes in which a name is looked up, the innermost first."""
        self.class_scopes: set[int] = set()
        self.line, self.depth = 1, 0
        """The line of the statement or call, and how many expressions it is inside of."""
        self.texts: list[tuple[str, int]] = []
        """Commands that the script starts, with the line."""
        self.classes: set[str] = set()
        """Classes of the script whose fields are its settings."""
        self.functions: list[PythonFunction] = []
        self.called: set[int] = set()
        """The functions that were walked through, by the identity of their nodes."""
        self.stack: list[int] = []
        """Those being walked through, the outermost first."""
        self.exits: dict[str, list[State]] = {}
        """The states in which ways leave the innermost function, loop and `try` half-way."""
        self.ended: list[State] = []
        """Those in which the script ends."""
        self._met: dict[frozenset[int], tuple[int, str]] = {}
        """Objects of which each way makes one, with the line where the ways begin and why they differ."""
        self._last = 0

    def __getitem__(self, slot: tuple[Any, ...]) -> Any:
        return self.state.get(slot, GONE)

    def __setitem__(self, slot: tuple[Any, ...], value: Any) -> None:
        self.work.charge(self.work.size(value) // 100 + 1)
        self.state[slot] = value

    def number(self) -> int:
        """A number that no other scope or object has."""
        self._last += 1
        return self._last

    def of(self, space: str) -> dict[Any, Any]:
        """Every slot of one space that is written."""
        self.work.charge(len(self.state))
        return {slot[1]: value for slot, value in self.state.items() if slot[0] == space}

    def unknown(self, name: str, why: str = Unknown.why, *, several: bool = False) -> Unknown:
        """A value that depends on this, at the line reached."""
        return Unknown(name, self.line, why, several)

    # ── names ──

    def name(self, name: str) -> Any:
        """What a name is bound to; GONE where the script has not bound it."""
        return next((self["name", each, name] for each in self.scopes if ("name", each, name) in self.state), GONE)

    def bind(self, name: str, value: Any) -> None:
        """Bind a name in the innermost scope, or where `global` sends it."""
        is_global = self["global", self.scopes[0], name] is True
        self["name", self.scopes[-1] if is_global else self.scopes[0], name] = value

    def rebind(self, held: Any, value: Any) -> None:
        """Put a changed list or mapping in place of what it was, under every name that holds it."""
        self.work.charge(len(self.state))
        for slot in [slot for slot, each in self.state.items() if each is held and slot[0] == "name"]:
            self[slot] = value

    # ── objects of settings ──

    def make(self, kind: str, keys: Mapping[str, Any]) -> Made:
        """A new object of settings."""
        number = self.number()
        self["config", number] = MadeConfig(kind, self.line, dict(keys))
        return Made(f"{kind}(…)", self.line, numbers=(number,))

    def put(self, made: Made, keys: Mapping[str, Any]) -> None:
        """Set some of what an object holds; of one of several that other names hold too it is not known which."""
        self.work.charge(len(self.state))
        is_shared = len(made.numbers) > 1 and any(
            isinstance(each, Made) and each.numbers != made.numbers and set(each.numbers) & set(made.numbers)
            for slot, each in self.state.items()
            if slot[0] == "name"
        )
        for number in made.numbers:
            held: MadeConfig = self["config", number]
            self.work.charge(len(held.keys))
            changed = {**held.keys, **keys}
            changed = self._keys(held.kind, [held.keys, changed], self.line, BRANCHES) if is_shared else changed
            self["config", number] = replace(held, keys=changed)

    def use(self, made: Made) -> None:
        """Hand an object to a trainer."""
        for number in made.numbers:
            self["config", number] = replace(self["config", number], is_used=True)

    def alike(self, numbers: Iterable[int]) -> MadeConfig:
        """One object for several of a kind of which it is not seen which one counts."""
        configs = [cast("MadeConfig", self["config", each]) for each in numbers]
        first, line = configs[0], configs[0].line
        if len(configs) == 1:
            return first
        met = next((each for group, each in self._met.items() if group.issuperset(numbers)), None)
        lines = sorted({each.line for each in configs})
        if met is not None:
            line, why = met
        elif len(lines) > 1:
            why = f"which lines {', '.join(map(str, lines))} set differently"
        else:
            why = f"which line {line} sets differently each time it is reached"
        return replace(first, keys=self._keys(first.kind, [each.keys for each in configs], line, why))

    # ── ways ──

    def fork(self) -> State:
        """A copy of what holds, for one way."""
        self.work.charge(1 + len(self.state) // 100)
        return dict(self.state)

    def join(self, ways: Sequence[State], line: int, why: str = BRANCHES) -> None:
        """Go on with what holds after every one of these ways."""
        first = ways[0]
        self.state = dict(first)
        self.work.charge(sum(map(len, ways)) // 8)
        changed = dict.fromkeys(
            slot
            for way in ways[1:]
            for slot in (
                *[slot for slot, value in way.items() if first.get(slot, GONE) is not value],
                *(first.keys() - way.keys()),
            )
        )
        for slot in changed:
            self.work.charge(len(ways))
            self.state[slot] = self._slot(slot, [way.get(slot, GONE) for way in ways], line, why)
        self._meet_new([[slot for slot in changed if slot[0] == "config" and slot in way] for way in ways], line, why)

    def _meet_new(self, made: Sequence[Sequence[tuple[Any, ...]]], line: int, why: str) -> None:
        """Note which objects of a kind several ways make."""
        shared = set(made[0]).intersection(*made[1:])
        for kind in dict.fromkeys(self.state[slot].kind for slots in made for slot in slots):
            new = [
                [slot[1] for slot in slots if slot not in shared and self.state[slot].kind == kind] for slots in made
            ]
            if sum(map(bool, new)) > 1:
                self._met.setdefault(frozenset(number for each in new for number in each), (line, why))

    def _slot(self, slot: tuple[Any, ...], values: list[Any], line: int, why: str) -> Any:
        """What a slot holds from here on."""
        space, name = slot[0], str(slot[-1])
        said = [each for each in values if each is not GONE]
        if space == "config" and len(said) == len(values):
            keys = self._keys(said[0].kind, [each.keys for each in said], line, why)
            return replace(said[0], keys=keys, is_used=any(each.is_used for each in said))
        if space in ("config", "handed", "global"):
            return said[0]
        return self.either(said if space == "name" else values, name, line, why)  # a name that is not bound is not used

    def _keys(self, kind: str, several: Sequence[Mapping[Any, Any]], line: int, why: str) -> dict[Any, Any]:
        """The settings that several ways give one object: one that only some of them set is unknown too."""
        return {
            key: self.either(
                [each.get(key, GONE) for each in several], f"{kind}({key}=…)" if kind else str(key), line, why
            )
            for key in dict.fromkeys(name for each in several for name in each)
        }

    def either(self, values: Sequence[Any], name: str, line: int, why: str) -> Any:
        """One value for that of each way: itself where they agree, a text or list as far as it goes, else unknown."""
        first = values[0]
        if all(self.work.same(each, first) for each in values[1:]):
            return first
        if all(isinstance(each, Made) and each.name == first.name for each in values):
            numbers = tuple(dict.fromkeys(number for each in values for number in each.numbers))
            self._met.setdefault(frozenset(numbers), (line, why))
            return replace(first, numbers=numbers)
        if all(isinstance(each, list) for each in values):
            return self._list(values, Unknown(name, line, why, several=True))
        if all(isinstance(each, str) for each in values):
            return self._text(values, Unknown(name, line, why))
        if all(isinstance(each, dict) for each in values):
            return self._keys("", values, line, why)
        return Unknown(name, line, why)

    def _list(self, lists: Sequence[list[Any]], gap: Unknown) -> list[Any]:
        """What several lists begin with, and a gap for the rest."""
        shared: list[Any] = []
        for each in zip(*lists, strict=False):
            if not all(self.work.same(one, each[0]) for one in each[1:]):
                break
            shared.append(each[0])
        rest = tuple(word for words in lists for word in words[len(shared) :] if isinstance(word, str))
        return [*shared, replace(gap, maybe=rest)]

    def _text(self, texts: Sequence[str], gap: Unknown) -> Any:
        """Words of a command that one way adds to: those of all, and a gap. Any other text is whole or not known."""
        start = min(texts, key=len)
        ends = [each[len(start) :] for each in texts if each.startswith(start)]
        is_words = all(not end or end[0].isspace() or start[-1:].isspace() for end in ends)
        if len(ends) < len(texts) or not is_words or not is_command(start):
            return gap
        rest = tuple(word for end in ends for word in end.split())
        return f"{start} {self.holes.hole(gap.name, gap.line, gap.why, several=True, maybe=rest)} "


def is_command(text: str) -> bool:
    """Whether a text is words for a command line rather than a value."""
    return "--" in text or re.search(r"\w\.\w+=", text) is not None
