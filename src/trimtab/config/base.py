"""The base of every settings class: frozen, closed, and its errors in the house form."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trimtab.errors import ConfigError, ConfigWarning, UnknownNameError, nearest

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite number; an integer is welcome, a boolean or a string is not."""


Value = TypeVar("Value", bound="Config")  # typing.Self is refused by the run-time checker of the tests


class Config(BaseModel):
    """Settings as a value: frozen, comparable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def __init__(self, /, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise _house_error(type(self), error) from None
        for doubt in self.doubts():
            warnings.warn(doubt, ConfigWarning, stacklevel=2)

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
                f"{cls.__name__} needs a mapping of settings, got {settings!r}. Write `field: value` lines."
            )
        keys = cast("Mapping[object, Any]", settings)
        return cls(**{str(key): value for key, value in keys.items()})

    def settings(self) -> dict[str, Any]:
        """The plain settings that describe this value, defaults left out; `from_settings` reads them back."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def but(self: Value, **changes: Any) -> Value:
        """This value with some fields changed, validated again."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**(fields | changes))


def _house_error(model: type[BaseModel], error: ValidationError) -> ConfigError:
    """The first problem of a pydantic report as `<thing> needs <rule>, got <value>. <remedy>.`"""
    first = error.errors(include_url=False)[0]
    inner = first.get("ctx", {}).get("error")
    location = first["loc"]
    path = ".".join(str(part) for part in location)
    if isinstance(inner, ConfigError):  # a nested value already spoke in the house form
        return type(inner)(f"{path}: {inner}" if path else str(inner))
    thing = model.__name__
    field = str(location[-1]) if location else ""
    if first["type"] == "extra_forbidden":
        return UnknownNameError(f"{thing} has no field {path!r}. {nearest(field, model.model_fields)}")
    if first["type"] == "missing":
        return ConfigError(f"{thing} needs {path}, got nothing. {_description(model, path)}".rstrip())
    if first["type"] == "literal_error":
        choices = first.get("ctx", {}).get("expected", "")
        given = first["input"]
        hint = nearest(given, _choices(model, path)) if isinstance(given, str) else ""
        return UnknownNameError(f"{thing} needs {path} to be {choices}, got {given!r}. {hint}".rstrip())
    rule = {
        "float_type": "a number",
        "int_type": "a whole number",
        "finite_number": "a finite number (leave the field out to have no bound)",
        "bool_type": "true or false",
    }.get(first["type"], first["msg"].removeprefix("Value error, "))
    return ConfigError(
        f"{thing} needs {path} to be {rule}, got {first['input']!r}. {_description(model, path)}".rstrip()
    )


def _description(model: type[BaseModel], field: str) -> str:
    info = model.model_fields.get(field)
    return f"It is: {info.description}" if info and info.description else ""


def _choices(model: type[BaseModel], field: str) -> list[str]:
    """Every string a literal field accepts, through unions and aliases."""
    info = model.model_fields.get(field.split(".")[0])
    pending: list[Any] = [info.annotation] if info else []
    found: list[str] = []
    while pending:
        annotation = pending.pop()
        for part in get_args(annotation):
            if isinstance(part, str):
                found.append(part)
            else:
                pending.append(part)
    return found
