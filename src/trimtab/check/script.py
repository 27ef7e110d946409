"""A counterexample as Python that anybody can run: the framework's function, two batches, and the two numbers that should agree."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from trimtab.check.ask import Counterexample, Judgement, version_named
from trimtab.check.compare import Disagreement
from trimtab.check.laws import Law
from trimtab.check.question import Call, Pair
from trimtab.check.stand_ins import Anything, importing_without, not_installed
from trimtab.check.subject import Asked, Subject

DERIVED = {
    "sign": '{side}["gradient"].sign()',
    "finite": 'torch.isfinite(torch.cat([torch.as_tensor({side}["loss"]).view(1), {side}["gradient"].view(-1)])).all()',
}
"""What is compared and no function returns."""


def script_of(subject: Subject, law: Law, answer: Judgement) -> str:
    """The script for a broken answer."""
    found, asked = answer.counterexample, answer.asked
    assert found is not None
    assert asked is not None
    version = version_named(subject)
    name = f"{subject.name} {version}" if version else subject.name
    text = [
        f'"""{name} breaks a law ({law.name}).',
        "",
        answer.question.sentence,
        f'Settings: {answer.setup.name}. Found by `trimtab check`, which this script does not need."""',
        "",
        "from __future__ import annotations",
        "",
        "import torch",
        *_stand_ins(subject),
        *_typed_dicts(subject),
        *asked.import_lines,
        "",
        'nan, inf = float("nan"), float("inf")',
        "",
        "",
        asked.source.rstrip(),
        "",
        "",
        *_calls(found, asked, dict(answer.setup.settings)),
        *_prints(found),
    ]
    return "\n".join(text) + "\n"


def _typed_dicts(subject: Subject) -> list[str]:
    if not subject.typed_dicts or sys.version_info >= (3, 12):
        return []
    line = "typing.TypedDict = typing_extensions.TypedDict  # as pydantic wants it before Python 3.12"
    return ["import typing", "", "import typing_extensions", "", line]


def _stand_ins(subject: Subject) -> list[str]:
    """The definitions that let a framework be imported here without what is not installed."""
    missing = not_installed(subject.optional)
    if not missing:
        return []
    return [
        "import builtins",
        "",
        "",
        "# Not installed here, and never used by the arithmetic below. With a full installation this part can go.",
        inspect.getsource(Anything).rstrip(),
        "",
        "",
        inspect.getsource(importing_without).rstrip(),
        "",
        "",
        f"builtins.__import__ = importing_without({missing!r}, asked_by={list(subject.packages)!r})",
        "",
    ]


def _calls(found: Counterexample, asked: Asked, settings: Mapping[str, Any]) -> list[str]:
    pair, call = found.pair, asked.adapter.__name__
    lines = [f"settings = {settings!r}", *_arguments("batch", pair.first, None)]
    lines.append(f"first = {call}(function, **batch, settings=settings)")
    if pair.others:
        lines.extend(_arguments("changed", pair.others[0], pair.first))
        lines.append(f"other = {call}(function, **changed, settings=settings)")
    return lines


def _arguments(name: str, call: Call, beside: Call | None) -> list[str]:
    """A batch as keyword arguments; beside another one, only what differs from it."""
    lines = [f"{name} = dict(" if beside is None else f"{name} = batch | dict("]
    for key, value in call.tensors.items():
        if beside is None or not _same(value, beside.tensors[key]):
            lines.append(f"    {key}={tensor_text(value)},")
    if call.split is not None and (beside is None or call.split != beside.split):
        lines.append(f"    split={call.split!r},")
    return [*lines, ")"]


def _same(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and tensor_text(left) == tensor_text(right)


def tensor_text(value: Tensor) -> str:
    """A tensor as Python, in as few digits as bring it back."""
    return f"torch.tensor({_numbers(value.tolist())})"


def _numbers(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_numbers(each) for each in value)}]"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.7g}" if float(f"{value:.7g}") != int(value) else f"{value:.1f}"
    return repr(value)


def _prints(found: Counterexample) -> list[str]:
    if found.difference is None:
        return [f"print(first)  # never reached: {found.error}".replace("\n", " ")]
    first = _number("first", found.difference, None)
    lines = [_line(found.difference, found.pair.labels[0], first)]
    if found.pair.others:
        other = _number("other", found.difference, found.pair)
    else:
        expected = found.pair.expected[found.difference.key]
        place = found.difference.place
        other = _numbers(float(expected if place is None else expected[place]))
    return [*lines, _line(found.difference, found.pair.labels[1], other)]


def _line(difference: Disagreement, label: str, number: str) -> str:
    return f'print("{difference.where} {label}:", {number})'


def _number(side: str, difference: Disagreement, pair: Pair | None) -> str:
    """An expression for one of the two numbers."""
    if difference.is_metric:
        return f'float({side}["metrics"][{difference.key!r}])'
    key, place = difference.key, difference.place
    value = DERIVED.get(key, '{side}["{key}"]').format(side=side, key=key)
    if place is None:
        return f"float({value})"
    cut = "" if pair is None else pair.view.source(len(place))
    return f"float({value}{cut}[{', '.join(map(str, place))}])"
