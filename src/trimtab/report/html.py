"""The frame of every page: one HTML file, no network, no script or style but those whose digest its policy names; text made harmless."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from decimal import ROUND_HALF_UP, Decimal
from importlib import resources
from typing import Any

from trimtab.config.visible import visible


def document(title: str, body: str, *, style: str, script: str, data: Any) -> str:
    """The whole page; `body` is HTML, `data` is what the script reads from the element called data."""
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">',
            f'<link rel="icon" href="data:,"><title>{escape_html(title)}</title><style>{style}</style></head><body>',
            body,
            f'<script type="application/json" id="data">{script_json(data)}</script>',
            f"<script>{script}</script></body></html>",
        ]
    )


def asset(name: str, package: str = "trimtab.report") -> str:
    """A style sheet or script that comes with the package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def escape_html(value: object) -> str:
    """Any value as HTML text, also fit for a quoted attribute; what cannot be seen is named as ⟨U+202E⟩."""
    return html.escape(visible(str(value)), quote=True)


def script_json(value: Any) -> str:
    """JSON for a `<script type="application/json">`: nothing in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def short_number(value: float | int, digits: int = 3) -> str:
    """A number for a reader: three significant digits, a real minus sign, 1.2e−05 where zeros would pile up."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    size = abs(value)
    if value != 0 and (size < 1e-3 or size >= 1e6):
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        text = f"{mantissa}e{int(power)}"
    else:
        places = 0 if size >= 100 else max(0, digits - 1 - (math.floor(math.log10(size)) if size else 0))
        text = f"{_half_up(value, places):,.{places}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−")


def _half_up(value: float | int, places: int) -> Decimal:
    """Rounded as people do it: 96.5 to 97. Python would go to the even one, or by the last bit of the float."""
    return Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)


def with_decimals(value: float, places: int = 2) -> str:
    """A number with so many decimals."""
    return f"{_half_up(value, places):.{places}f}"


def percent(share: float | int) -> str:
    """A share as a percentage: 3.1 %."""
    return f"{short_number(100 * share, 2 if share < 0.995 else 3)} %"


def plural(count: int, noun: str) -> str:
    """1 step, 2 steps."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
