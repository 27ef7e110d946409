"""An estimate with its interval on one short line, for a cell of a table."""

from __future__ import annotations

from trimtab.report.text import short_number

SPAN, TALL = 220, 26
_EDGE = 8


def interval_svg(estimate: float, lower: float, upper: float, *, ends: tuple[float, float], margin: float) -> str:
    """A dot on a line from `lower` to `upper` over the range `ends`; 0 is a rule, ±`margin` a band around it.

    Bounds outside the range are cut there.
    """
    low, high = ends

    def place(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return _EDGE + share * (SPAN - 2 * _EDGE)

    middle = TALL / 2
    said = f"{short_number(estimate)}, from {short_number(lower)} to {short_number(upper)}"
    return (
        f'<svg class="interval" viewBox="0 0 {SPAN} {TALL}" width="{SPAN}" height="{TALL}" role="img" aria-label="{said}">'
        f'<rect class="marked" x="{place(-margin):.1f}" y="2" width="{place(margin) - place(-margin):.1f}" height="{TALL - 4}"/>'
        f'<path class="axis" d="M{place(0.0):.1f} 2V{TALL - 2}"/>'
        f'<path class="line s1" d="M{place(lower):.1f} {middle}H{place(upper):.1f}"/>'
        f'<circle class="dot s1" cx="{place(estimate):.1f}" cy="{middle}" r="4"/></svg>'
    )
