"""How long a test waits for what must come: long enough for a machine that does much else, so only a hang reaches it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LIMIT = 900.0
HEARD = threading.Event()
"""Set where the suite comes on: whoever watches that it does not hang clears it and waits for the next."""


def until(true: Callable[[], object], what: str = "what the test waits for", pause: float = 0.02) -> None:
    """Returns as soon as the condition holds; fails where it never does."""
    end = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < end, f"waited {LIMIT:g} s for {what}"
        time.sleep(pause)
