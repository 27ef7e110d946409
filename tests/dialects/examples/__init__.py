"""Examples of every framework's settings: what its page shows and what the tests try."""

from __future__ import annotations

from tests.dialects.examples import (
    areal,
    miles,
    nemo_rl,
    open_instruct,
    openrlhf,
    prime_rl,
    roll,
    skyrl,
    slime,
    swift,
    tinker,
    trl,
    tunix,
    verl,
)
from tests.dialects.examples.rows import Examples

EXAMPLES: dict[str, Examples] = {
    "verl": verl.EXAMPLES,
    "areal": areal.EXAMPLES,
    "skyrl": skyrl.EXAMPLES,
    "trl": trl.EXAMPLES,
    "openrlhf": openrlhf.EXAMPLES,
    "ms-swift": swift.EXAMPLES,
    "slime": slime.EXAMPLES,
    "nemo-rl": nemo_rl.EXAMPLES,
    "roll": roll.EXAMPLES,
    "prime-rl": prime_rl.EXAMPLES,
    "open-instruct": open_instruct.EXAMPLES,
    "miles": miles.EXAMPLES,
    "tinker": tinker.EXAMPLES,
    "tunix": tunix.EXAMPLES,
}
"""By the name of the framework."""
