"""miles: slime's weights and its `mis` recipe, between the same three policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction
from trimtab.dialects.framework import Given
from trimtab.dialects.miles.keys import NOT_HERE
from trimtab.dialects.parts import refuse
from trimtab.dialects.slime import correction as slime

PLACE = "miles.backends.training_utils.loss"


def correction_of(given: Given) -> Correction:
    """As slime, without what only slime has."""
    refuse_slimes(given)
    refuse(
        (given["custom_tis_function_path"] or "").endswith(slime.TRUST_REGION),
        f"miles --custom-tis-function-path {given['custom_tis_function_path']}",
        "no release of miles has that function; slime's has. Use its icepop_function, or --from slime",
    )
    return slime.correction_of(given)


def refuse_slimes(given: Given) -> None:
    """Refused where a key is written that only slime has."""
    for name in NOT_HERE:
        why = "miles#3317 proposes it and no release has it" if name == "use_score_centering" else "only slime has it"
        refuse(
            given.has(name) and given[name], f"miles {name}", f"{why}. Leave it out, or read the file with --from slime"
        )


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """slime's proposals, with the functions where miles has them."""
    for each in slime.candidates(rule):
        if not any(name in each for name in NOT_HERE):
            path = each.get("custom_tis_function_path", "")
            own = {"custom_tis_function_path": path.replace(slime.PLACE, PLACE)} if path else {}
            yield {**each, **own}
