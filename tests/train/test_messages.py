"""Groups on their way between processes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from trimtab.errors import InputError
from trimtab.train.messages import Group, Job, Sample, SampledHead

JOB = Job(7, np.array([1, 2], np.int32), 3, seed=5, max_tokens=4)
HEAD = SampledHead(np.array([2], np.int32), np.array([4, 9], np.int32), np.zeros(2, np.float32), None)


def sample(*tokens: int, raw: bool = True, head: SampledHead | None = None) -> Sample:
    """Every number of it another one, so that nothing can stand in for anything else."""
    floats = np.array([-each / 3 for each in tokens], np.float32)
    versions = np.array([100 + each for each in tokens], np.int32)
    return Sample(np.array(tokens, np.int32), floats, floats * 2 if raw else None, versions, "length", head)


def sent(group: Group) -> Group:
    return pickle.loads(pickle.dumps(group, protocol=pickle.HIGHEST_PROTOCOL))


def same(one: Sample, other: Sample) -> bool:
    arrays = ("tokens", "behavior", "versions")
    kept = all(
        getattr(one, name).dtype == getattr(other, name).dtype
        and getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in arrays
    )
    raws = [None if each.raw is None else each.raw.tobytes() for each in (one, other)]
    return kept and raws[0] == raws[1] and one.finish == other.finish


@pytest.mark.parametrize("raw", [True, False])
def test_a_group_that_was_sent_is_the_same_group(raw: bool) -> None:
    given = Group(JOB, (sample(3, 4, 5, raw=raw), sample(raw=raw), sample(6, raw=raw, head=HEAD)), ("a", "", "b"))
    got = sent(given)
    assert all(same(one, other) for one, other in zip(got.samples, given.samples, strict=True))
    assert not same(got.samples[0], given.samples[2])
    assert (got.oldest, got.texts, got.job.group, got.job.prompt.tolist()) == (103, ("a", "", "b"), 7, [1, 2])
    assert got.samples[0].head is None
    assert got.samples[2].head is not None
    assert got.samples[2].head.ids.tolist() == [4, 9]
    assert all(each.tokens.flags.writeable for each in got.samples)


def test_a_group_without_responses_or_tokens_can_be_sent() -> None:
    assert sent(Group(JOB, ())).samples == ()
    assert [len(each.tokens) for each in sent(Group(JOB, (sample(), sample()))).samples] == [0, 0]


def test_a_response_whose_arrays_differ_in_length_is_not_sent() -> None:
    """Laid one after the other, the next response would get its numbers."""
    short = Sample(np.zeros(2, np.int32), np.zeros(1, np.float32), None, np.zeros(2, np.int32), "stop")
    with pytest.raises(
        InputError, match=r"a log-prob and a version for each of its tokens, got \[1, 1\] for responses of \[2, 1\]"
    ):
        sent(Group(JOB, (short, sample(5, raw=False))))
    with pytest.raises(InputError, match="for all of its 2 responses or none, got 1"):
        sent(Group(JOB, (sample(5), sample(5, raw=False))))


def test_however_many_responses_a_group_has_it_is_sent_as_four_arrays_beside_its_prompt() -> None:
    def arrays(count: int) -> int:
        buffers: list[pickle.PickleBuffer] = []
        group = Group(JOB, tuple(sample(3, 4) for _ in range(count)))
        pickle.dumps(group, protocol=5, buffer_callback=buffers.append)
        return len(buffers)

    assert arrays(2) == arrays(64) == 5
