"""What of the environment a verifier's process sees: what Python and its caches need. No key, token or password passes."""

from __future__ import annotations

import re
from collections.abc import Mapping

PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TMP|TEMP|PYTHON\w*|VIRTUAL_ENV|CONDA_PREFIX|LD_LIBRARY_PATH|DYLD_\w+"
    r"|(OMP|MKL|OPENBLAS|NUMEXPR|VECLIB)_\w+|TOKENIZERS_PARALLELISM|CUDA_(HOME|VISIBLE_DEVICES|DEVICE_ORDER)"
    r"|HF_(HOME|HUB_CACHE|HUB_OFFLINE|DATASETS_CACHE|DATASETS_OFFLINE)|TRANSFORMERS_(CACHE|OFFLINE)|XDG_CACHE_HOME|TORCH_HOME|NLTK_DATA"
    r"|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|(?i:(https?|all|no)_proxy)|SYSTEMROOT"
)
"""Names that pass."""
SECRET = re.compile(r"(?i)key|token|secret|passw|credential|auth(?!ority)")
"""Names that never do, whatever stands above."""


def passed(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a verifier's process gets."""
    return {name: value for name, value in environment.items() if _passes(name, value)}


def withheld(environment: Mapping[str, str], text: str) -> str | None:
    """A name that a text, such as an error, speaks of and that did not pass."""
    spoken = set(re.findall(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+", text))
    return next((name for name in sorted(spoken & environment.keys()) if not _passes(name, environment[name])), None)


def _passes(name: str, value: str) -> bool:
    if name == "TOKENIZERS_PARALLELISM":
        return True
    proxy = name.lower().endswith("_proxy")
    return bool(PASSED.fullmatch(name)) and not SECRET.search(name) and not (proxy and "@" in value)  # a password in it
