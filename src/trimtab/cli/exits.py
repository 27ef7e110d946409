"""Exit codes that say how far a command came with settings."""

from __future__ import annotations

READ_IN_PART = 3
"""A part of the settings could not be read and the rest was."""
WRITTEN_IN_PART = 4
"""Everything was read and the target can say only some of it."""
