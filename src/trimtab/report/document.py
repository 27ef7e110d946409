"""The frame of every page: one HTML file, no network, no script or style but those whose digest its policy names."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any

from trimtab.report.text import escape_html, script_json


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
