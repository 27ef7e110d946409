"""What signals mean to a run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from trimtab.train import stop as module
from trimtab.train.stop import Stop, StoppedAtOnceError


@pytest.fixture
def stop() -> Iterator[Stop]:
    before = {number: signal.getsignal(number) for number in module.REASONS}
    with Stop() as made:
        yield made
    assert {number: signal.getsignal(number) for number in module.REASONS} == before


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "reason"),
    [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated"), (signal.SIGHUP, "hung up")],
)
def test_a_first_signal_is_a_wish(stop: Stop, number: signal.Signals, reason: str) -> None:
    assert not stop
    send(number)
    assert stop
    assert stop.reason == reason


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_one_interrupts_at_once(
    stop: Stop, monkeypatch: pytest.MonkeyPatch, first: signal.Signals, second: signal.Signals
) -> None:
    monkeypatch.setattr(module, "AGAIN", 0.0)
    send(first)
    with pytest.raises(StoppedAtOnceError) as raised:
        send(second)
    assert raised.value.number == second
    assert isinstance(raised.value, KeyboardInterrupt)


def test_sigterm_sent_twice_at_one_time_is_one_wish(stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout` sends it to the process and to its group."""
    monkeypatch.setattr(module, "AGAIN", 3600.0)
    send(signal.SIGTERM)
    send(signal.SIGTERM)
    assert stop.reason == "terminated"


def test_a_terminal_that_closes_sends_several_and_means_one(stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN", 0.0)
    for _ in range(3):
        send(signal.SIGHUP)
    assert stop.reason == "hung up"


def test_under_nohup_a_closed_terminal_means_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop() as stop:
            send(signal.SIGHUP)
            assert not stop
    finally:
        signal.signal(signal.SIGHUP, before)
