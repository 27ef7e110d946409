"""One sampler beside the learner, as a back-end sees it: a process on this machine, or an actor on another."""

from __future__ import annotations

from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol, runtime_checkable

from trimtab.train.backends.serve import Failed, Message, Order, Ready


@dataclass(frozen=True)
class Fate:
    """How a sampler ended."""

    cause: str
    """What follows its name: "was ended by SIGKILL"."""
    log: str
    """Where to look."""
    tail: str
    """How that ends."""
    traceback: str | None = None
    is_from_outside: bool = False
    """Whether somebody else ended it, or the system did: it may have had nothing wrong with it."""


@runtime_checkable
class Seat(Protocol):
    """A sampler from its start to its end. What it says goes to the back-end's inbox; None is its last word."""

    number: int
    ready: bool
    """Whether it has said that it is."""

    def send(self, order: Order) -> None:
        """Now, or when it is ready; never waits for long. To a dead one, nothing: its end is seen elsewhere."""
        ...

    def hear(self, message: Ready | Failed) -> None:
        """What it said about itself."""
        ...

    def look(self, now: float, *, working: bool) -> None:
        """See to it that one that has work and shows no life is ended, and that its end becomes known."""
        ...

    def bury(self) -> Fate:
        """After its last word: give back what is kept of it."""
        ...


Inbox = SimpleQueue[tuple[Seat, Message | None]]
"""What samplers said; None is the last from each."""
