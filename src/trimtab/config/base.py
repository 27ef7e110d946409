"""The base of every settings class: frozen, closed, and its errors in the house form."""

from __future__ import annotations

import math
import os
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_args

import pydantic
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trimtab.errors import ConfigError, ConfigWarning, UnknownNameError, nearest

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite number; an integer is welcome, a boolean or a string is not."""
Count = Annotated[int, Field(strict=True, ge=1)]
Whole = Annotated[int, Field(strict=True, ge=0)]
Share = Annotated[Number, Field(ge=0, le=1)]
Positive = Annotated[Number, Field(gt=0)]
Flag = Annotated[bool, Field(strict=True)]

_INTERNAL = tuple(f"{Path(place).parent}{os.sep}" for place in (pydantic.__file__, Path(__file__).parent))
_PATH = re.compile(r"[\w.]+: ")

Thing = TypeVar("Thing")
Value = TypeVar("Value", bound="Config")  # typing.Self is refused by the run-time checker of the tests


class Config(BaseModel):
    """Settings as a value: frozen, comparable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)

    def __init__(self, /, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise _house_error(type(self), error) from None
        for doubt in self.doubts():
            warnings.warn(doubt, ConfigWarning, stacklevel=_caller_level())

    def doubts(self) -> list[str]:
        """What is legal here and probably not meant; said once, as a warning, at construction."""
        return []

    @classmethod
    def from_settings(cls: type[Value], settings: object) -> Value:
        """The value these plain settings (as read from YAML or JSON) describe."""
        if isinstance(settings, cls):
            return settings
        if not isinstance(settings, Mapping):
            raise ConfigError(
                f"{cls.__name__} needs a mapping of settings, got {excerpt(settings)}. Write `field: value` lines."
            )
        return cls(**with_named_keys(cast("Mapping[object, Any]", settings)))

    def settings(self) -> dict[str, Any]:
        """The plain settings that describe this value, defaults left out; `from_settings` reads them back."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def but(self: Value, **changes: Any) -> Value:
        """This value with some fields changed, validated again."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**(fields | changes))


def with_named_keys(settings: Mapping[object, Any]) -> dict[str, Any]:
    """Settings with every key a name, also where YAML read a number or null for one."""
    return {str(key): _with_text_keys(value) for key, value in settings.items()}


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return with_named_keys(cast("Mapping[object, Any]", value))
    return [_with_text_keys(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def kind_of_name(given: object, default: str | None = None) -> object:
    """A kind by its name alone; settings without a kind are those of the default's, where there is one."""
    if isinstance(given, str):
        return {"kind": given}
    if default is None or not isinstance(given, Mapping) or "kind" in given:
        return given
    return {"kind": default, **cast("Mapping[str, Any]", given)}


def term_of_coefficient(given: object) -> object:
    """A term by its coefficient alone."""
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return {"coefficient": given} if is_number else given


def excerpt(value: object, most: int = 80) -> str:
    """A value as an error message shows it: one line, cut where it grows long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def of_kind(kind: type[Thing], value: object, needs: str, example: str) -> Thing:
    """A value of that kind, or an error that begins with what needs it."""
    if not isinstance(value, kind):
        raise ConfigError(f"{needs}, got {excerpt(value)}. Pass {example}.")
    return value


def _caller_level() -> int:
    """How many frames up the code that asked for a value stands, past pydantic and this package."""
    level, frame = 2, sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INTERNAL):
        level, frame = level + 1, frame.f_back
    return level


def _house_error(model: type[BaseModel], error: ValidationError) -> ConfigError:
    """The first problem of a pydantic report as `<thing> needs <rule>, got <value>. <remedy>.`

    A name that does not exist comes first: what else is wrong often follows from it.
    """
    problems = error.errors(include_url=False)
    first = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
    context = first.get("ctx", {})
    inner = context.get("error")
    path = ".".join(str(part) for part in first["loc"])
    if isinstance(inner, ConfigError):  # a nested value already spoke in the house form
        return type(inner)(_join(path, str(inner)))
    thing, given = model.__name__, first["input"]
    if first["type"] == "extra_forbidden":
        return UnknownNameError(f"{thing} has no field {excerpt(path)}. {nearest(path, model.model_fields)}")
    if first["type"] == "missing":
        return ConfigError(f"{thing} needs {path}, got nothing. {_description(model, path)}".rstrip())
    if first["type"] == "literal_error":
        hint = nearest(given, _choices(model, path)) if isinstance(given, str) else ""
        return UnknownNameError(
            f"{thing} needs {path} to be {context['expected']}, got {excerpt(given)}. {hint}".rstrip()
        )
    rule = _rule(first["type"], context) or first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return ConfigError(
        f"{thing} needs {path} to be {rule}, got {excerpt(given)}. {_remedy(model, path, given)}".rstrip()
    )


def _join(path: str, message: str) -> str:
    """A nested message under the path it came from: `weight` and `limit: Limit needs…` give `weight.limit: Limit needs…`."""
    return f"{path}{'.' if _PATH.match(message) else ': '}{message}" if path else message


def _rule(kind: str, context: Mapping[str, Any]) -> str | None:
    """What pydantic asked for, in a few words; None for what it rarely asks."""
    mapping = "a mapping of `field: value` lines"
    return {
        "float_type": "a number",
        "int_type": "a whole number",
        "finite_number": "a finite number (leave the field out to have no bound)",
        "bool_type": "true or false",
        "greater_than": f"greater than {context.get('gt', 0):g}",
        "greater_than_equal": f"at least {context.get('ge', 0):g}",
        "tuple_type": "a list",
        "model_type": mapping,
        "model_attributes_type": mapping,
        "dict_type": mapping,
    }.get(kind)


def _remedy(model: type[BaseModel], path: str, given: object) -> str:
    if isinstance(given, str) and _is_number(given):
        return "Drop the quotes."
    if isinstance(given, Mapping) and _is_list(model, path):
        return "Begin each item with `- `."
    return _description(model, path)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_list(model: type[BaseModel], path: str) -> bool:
    info = model.model_fields.get(path)
    return info is not None and getattr(info.annotation, "__origin__", None) is tuple


def _description(model: type[BaseModel], field: str) -> str:
    info = model.model_fields.get(field)
    return f"{field}: {info.description}" if info and info.description else ""


def _choices(model: type[BaseModel], field: str) -> list[str]:
    """Every string a literal field accepts, through unions and aliases."""
    info = model.model_fields.get(field.split(".")[0])
    pending: list[Any] = [info.annotation] if info else []
    choices: list[str] = []
    while pending:
        annotation = pending.pop()
        for part in get_args(annotation):
            if isinstance(part, str):
                choices.append(part)
            else:
                pending.append(part)
    return choices
