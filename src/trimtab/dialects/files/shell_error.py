"""What no shell would read."""

from __future__ import annotations


class ShellError(ValueError):
    """A text that no shell would read either."""
