"""Colours for as many lines as there are: hues far apart, each light or dark enough to be seen on the page it stands on."""

from __future__ import annotations

import colorsys

FIRST_COLOUR = 7
"""Colours up to here are those of the style sheet; further ones are made here, by place."""
CARDS = {"light": (247, 248, 250), "dark": (27, 31, 37)}
"""What charts are drawn on: --card of the style sheet."""
LEAST = 3.5
"""Contrast with it, at least; 3 is what the guidelines for graphics ask, and lines are thin."""


def colour(place: int, scheme: str = "light") -> tuple[int, int, int]:
    """The colour of a line by its place, from 0: hues by the golden angle, lightness moved until it can be seen."""
    hue, light = (place * 137.508) % 360 / 360, (0.42, 0.55, 0.34)[place % 3]
    step = -0.01 if scheme == "light" else 0.01
    while contrast(shade := _rgb(hue, light), CARDS[scheme]) < LEAST:
        light += step
    return shade


def _rgb(hue: float, light: float) -> tuple[int, int, int]:
    red, green, blue = colorsys.hls_to_rgb(hue, light, 0.65)
    return round(255 * red), round(255 * green), round(255 * blue)


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """The contrast ratio of two colours, from 1 to 21, as the guidelines for web content define it."""
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(rgb: tuple[int, int, int]) -> float:
    red, green, blue = (
        value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4
        for value in (part / 255 for part in rgb)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def rules(many: int, scheme: str = "light") -> str:
    """The style of so many further colours: lines, dots, and the keys beside them."""
    parts: list[str] = []
    for place in range(many):
        name, shade = f"s{FIRST_COLOUR + place}", "#{:02x}{:02x}{:02x}".format(*colour(place, scheme))
        parts.append(
            f".line.{name}{{stroke:{shade}}}.dot.{name},rect.{name}{{fill:{shade}}}i.{name}{{background:{shade}}}"
        )
    return "".join(parts)


def both_rules(many: int) -> str:
    """The same for a page that follows the reader's choice of light or dark."""
    return f"{rules(many)}@media (prefers-color-scheme: dark){{{rules(many, 'dark')}}}" if many else ""
