"""What the laws ask of advantage estimators with a group baseline, and of functions of staleness."""

from __future__ import annotations

from random import Random

import torch

from trimtab.check.draw import Inputs, reward_batch, version_batch
from trimtab.check.question import Call, Pair, Question, View, drawn_rows
from trimtab.check.subject import Setup, Subject


def drawn_rewards(random: Random, subject: Subject) -> Inputs:
    """Rewards as drawn."""
    return reward_batch(random, subject.by_place)


# --- votes -----------------------------------------------------------------------------------------------------------


def _removal(drawn: Inputs, _: Setup) -> Pair | None:
    rewards, group = drawn["rewards"], drawn["group"]
    rows = drawn_rows(drawn)
    if not any(group[row] == group[0] for row in range(1, rows)):
        return None
    mask = drawn["mask"].clone()
    mask[0] = False
    other = rewards.clone()
    other[0] = rewards[0] + 9.0
    first = Call(drawn | {"mask": mask})
    labels = ("with its reward as drawn", "with 9 more for the row that is out")
    return Pair(first, (Call(first.tensors | {"rewards": other}),), rows=tuple(range(1, rows)), labels=labels)


VOTES_QUESTIONS = (
    Question(
        "removed row",
        "advantages",
        "The reward of a row without a trained token moves no sibling's advantage.",
        drawn_rewards,
        _removal,
        compared=("advantages",),
    ),
)


# --- groups ----------------------------------------------------------------------------------------------------------


def _reorder(drawn: Inputs, _: Setup) -> Pair | None:
    turned = {name: value.flip(0) for name, value in drawn.items()}
    labels = ("as drawn", "with the rows in reverse")
    return Pair(Call(drawn), (Call(turned),), view=View(flip="rows"), labels=labels)


def _another_group(drawn: Inputs, _: Setup) -> Pair | None:
    group = drawn["group"]
    same = tuple(row for row in range(drawn_rows(drawn)) if group[row] == group[0])
    if len(same) == drawn_rows(drawn):
        return None
    changed = torch.where(group == group[0], drawn["rewards"], drawn["rewards"] * -2 + 5)
    labels = ("as drawn", "with other rewards in the other groups")
    return Pair(Call(drawn), (Call(drawn | {"rewards": changed}),), rows=same, labels=labels)


def _shift(drawn: Inputs, _: Setup) -> Pair | None:
    last = drawn["group"] == drawn["group"][-1]
    shifted = torch.where(last, drawn["rewards"] + 1, drawn["rewards"])
    labels = ("as drawn", "with 1 more for every row of one group")
    return Pair(Call(drawn), (Call(drawn | {"rewards": shifted}),), labels=labels)


GROUPS_QUESTIONS = (
    Question(
        "order of rows",
        "advantages",
        "Reordering the rows with their groups reorders the advantages and nothing else.",
        drawn_rewards,
        _reorder,
        compared=("advantages",),
    ),
    Question(
        "other groups",
        "advantages",
        "Rewards of another group change nothing.",
        drawn_rewards,
        _another_group,
        compared=("advantages",),
    ),
    Question(
        "baseline",
        "advantages",
        "One more for every row of a group changes no advantage, whatever its size: its baseline rises as well.",
        drawn_rewards,
        _shift,
        compared=("advantages",),
    ),
)


# --- versions --------------------------------------------------------------------------------------------------------


def drawn_versions(random: Random, _: Subject) -> Inputs:
    """Versions as drawn."""
    return version_batch(random)


def _oldest(drawn: Inputs, _: Setup) -> Pair | None:
    never = torch.iinfo(torch.int64).max
    oldest = torch.where(drawn["mask"], drawn["versions"], never).amin(1)
    return Pair(Call(drawn), expected={"ages": (drawn["learner"] - oldest).float()}, labels=("found", "expected"))


def _unknown(drawn: Inputs, setup: Setup) -> Pair | None:
    versions = drawn["versions"].clone()
    versions[0] = -1
    found = _oldest(drawn | {"versions": versions}, setup)
    assert found is not None
    ages = found.expected["ages"].clone()
    ages[0] = float("nan")
    return Pair(found.first, expected={"ages": ages}, labels=("found", "expected"))


VERSIONS_QUESTIONS = (
    Question(
        "oldest token",
        "ages",
        "A row is as old as its oldest trained token.",
        drawn_versions,
        _oldest,
        compared=("ages",),
    ),
    Question(
        "unknown version",
        "ages",
        "A row whose versions are not known (−1) has no age, and above all not age 0.",
        drawn_versions,
        _unknown,
        compared=("ages",),
    ),
)
