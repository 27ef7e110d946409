"""How old a group may grow: the rule that admits it and the test when its turn comes. Numbers in, numbers out.

A group begun at version v with o groups before it is trained ⌊o / groups_per_step⌋ steps later, if groups are trained in
the order of their numbers. So no more than (max_staleness + 1) × groups_per_step may be under way at once. That bounds the
age of the oldest token, time in the queue included. A group that finishes out of order can still be late; `late` sees it.

With 4 groups per step and max_staleness 1, at most (1 + 1) · 4 = 8 are under way:

    version  trained  admitted    room                    why
    0        0        0           0 + 8 − 0 = 8           two steps' worth begin with the first weights
    0        0        8           0 + 8 − 8 = 0           all must wait for a step
    0        4        8           0 + 8 − 8 = 0           a batch is taken, its weights are not out: min(4, 0 · 4) = 0 counts
    1        4        8           4 + 8 − 8 = 4           the next four see version 1
    1        4        8, 1 lost   4 + 8 − (8 − 1) = 5     a dropped group gives its place back

Where lengths are ragged, short groups overtake long ones. With all that the rule admits being sampled, a step lasts as long as
the average group over max_staleness + 1, so that whatever takes much longer than the average is late: of groups whose time is
lognormal (σ 0.5) about a fifth. `doomed` says how many would be, if the learner went on now; `waits` whether it should.

Groups 4 to 7 began at version 0 and are trained at version 1: age 1, not late. One of them trained at version 2 would be: 2 − 0 > 1.
"""

from __future__ import annotations

from collections.abc import Mapping


def room(version: int, groups_per_step: int, max_staleness: int, admitted: int, trained: int, dropped: int) -> int:
    """How many more groups may begin now, with weights of `version` or newer.

    `admitted`, `trained` and `dropped` count groups since the start of the run, and are saved with it. A group whose
    sampling is begun anew, after a death or a restart, keeps its place: it is admitted once.
    """
    # Between taking a batch and publishing its weights, `trained` is one step ahead of the version. After a restart that
    # forgot its counts, the version is ahead of `trained`. The smaller one is safe in both.
    settled = min(trained, version * groups_per_step)
    return max(0, settled + (max_staleness + 1) * groups_per_step - (admitted - dropped))


def late(oldest_version: int, learner_version: int, max_staleness: int) -> bool:
    """Whether a group whose oldest token came from `oldest_version` is too old to be trained now."""
    return learner_version - oldest_version > max_staleness


def doomed(
    under_way: Mapping[int, int], ready: Mapping[int, int], version: int, groups_per_step: int, max_staleness: int
) -> int:
    """How many groups can no longer be trained in time if the learner takes a batch now, the oldest first.

    Groups are counted by the version they began with. One begun at v − max_staleness + k has to be among the next k + 1 batches, so no
    more than k batches' worth of those may be left after this one. With 1 group per step and max_staleness 2, two groups of
    version 0 under way and one of version 1 ready, the learner at version 1: if it takes that one, the two are left for one
    more batch, at version 2. One of them is doomed.
    """
    most = left = running = 0
    for batches in range(max_staleness + 1):
        begun = version - max_staleness + batches
        running += under_way.get(begun, 0)
        left += ready.get(begun, 0)
        most = max(most, running + max(0, left - groups_per_step) - batches * groups_per_step)
    return most


def waits(doomed: int, trained: int, dropped: int, share: float) -> bool:
    """Whether the learner waits for groups that would be late if it went on.

    It does where dropping them too would bring the share of dropped groups, of all that were trained or dropped, above `share`.
    With 98 trained, 1 dropped and a share of 0.02, one more may be lost, 2 of 100; two may not, 3 of 101.
    """
    return doomed > 0 and dropped + doomed > share * (trained + dropped + doomed)
