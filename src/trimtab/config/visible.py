"""Text that came from outside, shown and never obeyed."""

from __future__ import annotations

import re

# Controls, and characters that reorder or hide what stands beside them; a line's end and a tab are left.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """The text with what cannot be seen named as ⟨U+202E⟩: no terminal or page acts on it, and UTF-8 can hold it."""
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def on_one_line(text: str) -> str:
    """The same, its line ends named too."""
    return visible(text).replace("\n", "⟨U+000A⟩")
