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
    monkeypatch.setitem(module.AGAIN, second, 0.0)
    send(first)
    with pytest.raises(StoppedAtOnceError) as raised:
        send(second)
    assert raised.value.number == second
    assert isinstance(raised.value, KeyboardInterrupt)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_of_one_moment_are_one_wish(
    stop: Stop, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """`timeout` sends to the process and to its group, a launcher passes on what the terminal has sent already, and a terminal that
    closes sends several."""
    if number != signal.SIGHUP:
        monkeypatch.setitem(module.AGAIN, number, 3600.0)
    for _ in range(5):
        send(number)
    assert stop.reason == module.REASONS[number]


def test_nothing_interrupts_a_run_that_ends(stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.AGAIN, signal.SIGINT, 0.0)
    send(signal.SIGINT)
    with pytest.raises(StoppedAtOnceError):
        send(signal.SIGINT)
    stop.end()
    for number in module.REASONS:
        send(number)
    assert stop.reason == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_while_a_run_is_put_together_a_first_one_interrupts(number: signal.Signals) -> None:
    with Stop(waits=False) as stop:
        with pytest.raises(StoppedAtOnceError) as raised:
            send(number)
        assert raised.value.number == number
        assert not stop


def test_under_nohup_a_closed_terminal_means_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop() as stop:
            send(signal.SIGHUP)
            assert not stop
    finally:
        signal.signal(signal.SIGHUP, before)
