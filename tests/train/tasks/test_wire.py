import datetime
import decimal
import json
import math
import socket
import struct
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.train.tasks.isolation import wire

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=())),  # lone surrogates too
    st.binary(),
    st.datetimes(),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(),
)
KEYS = st.one_of(st.text(), st.just("$"), st.integers(), st.tuples(st.integers(), st.text()))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.sets(st.integers()),
        st.frozensets(st.text()),
        st.dictionaries(KEYS, inner),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_encoded_is_plain_json_and_comes_back_as_it_was(value):
    back = wire.decoded(json.loads(json.dumps(wire.encoded(value))))
    assert repr(back) == repr(value) or back == value  # repr: NaN is NaN, 1 is not True, a tuple is no list


def test_numpy_goes_as_numbers_and_text():
    given_ = {"a": np.float32(0.5), "b": np.arange(3), "c": np.str_("x"), "d": np.bool_(True)}
    assert wire.decoded(wire.encoded(given_)) == {"a": 0.5, "b": [0, 1, 2], "c": "x", "d": True}


def test_what_has_no_form_in_json_is_a_type_error():
    with pytest.raises(TypeError, match="got function"):
        wire.encoded([lambda: None])
    with pytest.raises(TypeError, match="got module"):
        wire.encoded({"a": wire})


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    with left, right:
        yield left, right


def test_a_message_arrives_whole(pair):
    left, right = pair
    message = {"of": [1, (2.5, math.inf)], "when": datetime.date(2024, 2, 29), "much": decimal.Decimal("0.10")}
    wire.send(left, message)
    wire.send(left, "next")
    assert wire.receive(right, wire.REPLY) == message
    assert wire.receive(right, wire.REPLY) == "next"
    left.close()
    with pytest.raises(EOFError):
        wire.receive(right, wire.REPLY)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x05cos\nsystem\n",
        b"{",
        b"\xff\xfe",
        b"[" * 60_000,
        b"9" * 5000,
        b'{"$": "nothing", "of": 1}',
        b'{"$": "date"}',
        b'{"$": "decimal", "of": "x"}',
        b'{"$": "dict", "of": [[[], 1]]}',
        b'{"$": ["tuple"], "of": []}',
    ],
    ids=lambda content: repr(content[:12]),
)
def test_bytes_that_are_no_message_are_rubbish(pair, content):
    left, right = pair
    left.sendall(struct.pack(">I", len(content)) + content)
    with pytest.raises(wire.RubbishError):
        wire.receive(right, wire.REPLY)


def test_a_message_that_claims_too_many_bytes_is_rubbish_before_they_are_read(pair):
    left, right = pair
    left.sendall(struct.pack(">I", wire.REPLY + 1))
    with pytest.raises(wire.RubbishError, match="at most"):
        wire.receive(right, wire.REPLY)


def test_neither_a_message_half_sent_nor_one_not_taken_is_waited_for_beyond_the_deadline(pair):
    left, right = pair
    left.sendall(struct.pack(">I", 10) + b"half")
    with pytest.raises(TimeoutError):
        wire.receive(right, wire.REPLY, time.monotonic() + 0.05)
    with pytest.raises(TimeoutError):
        wire.send(left, "x" * 10_000_000, time.monotonic() + 0.05)
