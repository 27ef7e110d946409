"""What is installed beside trimtab, and the command that installs what is missing: from a clone, from a wheel, or from the index.

How trimtab itself was installed is read off its metadata, so every remedy can be typed as it is printed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
from typing import Any
from urllib.parse import unquote, urlsplit

EXTRAS = {
    "train": "trimtab train, demo and lab",
    "report": "trimtab report",
    "fast": "corrections and losses in one pass over the tokens",
    "check": "trimtab check of estimators that take groups as arrays",
    "tensorboard": "record.loggers tensorboard",
    "wandb": "record.loggers wandb",
    "trackio": "record.loggers trackio",
    "mlflow": "record.loggers mlflow",
    "ray": "backend ray",
}
"""What each extra is for, in the order in which `trimtab doctor` lists them."""
NEEDED = ("torch", "jaxtyping")
"""What the library needs and the commands about settings do without."""


def install_command(extra: str) -> str:
    """What to type for an extra of this installation: `pip install -e '/path/to/clone[ray]'` in a clone."""
    source = _source()
    if source is None:
        return f"pip install 'trimtab[{extra}]'"
    path, is_editable = source
    return f"pip install {'-e ' if is_editable else ''}'{path}[{extra}]'"


def _source() -> tuple[str, bool] | None:
    """The clone or wheel that trimtab was installed from, and whether in place; None: from the index."""
    try:
        text = importlib.metadata.distribution("trimtab").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    facts: dict[str, Any] = json.loads(text) if text else {}
    url = urlsplit(str(facts.get("url", "")))
    if url.scheme != "file":
        return None
    return unquote(url.path), bool(facts.get("dir_info", {}).get("editable"))


def packages_of(extra: str) -> list[str]:
    """The packages that an extra of trimtab asks for."""
    lines = importlib.metadata.requires("trimtab") or []
    found = [
        re.match(r"[A-Za-z0-9._-]+", line) for line in lines if re.search(rf"extra\s*==\s*['\"]{extra}['\"]", line)
    ]
    return [match[0] for match in found if match]


def extra_for(module: str) -> str | None:
    """The extra that brings a module, by the names of its package; None: no extra of ours does."""
    name = module.partition(".")[0].replace("_", "-").lower()
    return next((extra for extra in EXTRAS if name in [each.lower() for each in packages_of(extra)]), None)


def remedy_for(module: str) -> str | None:
    """What to install for a module that is missing; None: nothing of ours asks for it."""
    name = module.partition(".")[0]
    if name in NEEDED:
        return f"Install it: pip install {name}"
    extra = extra_for(name)
    return None if extra is None else f"Install the extra [{extra}]: {install_command(extra)}"


def version_of(package: str) -> str | None:
    """Its installed version; None: not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_training() -> None:
    """Raise what an import would, before processes are started in which it would fail."""
    for name in ("torch", "transformers", "safetensors", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
