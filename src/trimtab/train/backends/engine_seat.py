"""What the learner knows of a sampler with an engine, whichever way leads to it: whether it is ready, hung, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trimtab.train.backends.seat import Fate
from trimtab.train.backends.serve import Failed, Ready
from trimtab.train.backends.silence import Silence


@dataclass(eq=False, kw_only=True)
class EngineSeat:
    """A sampler from its start to its death. Ways to it are subclasses, which say by `_ending` how they saw it go."""

    number: int
    log: Path
    patience: float
    """Seconds of silence after which it counts as hung, if it has work."""
    start_patience: float
    """The same while it starts."""
    ready: bool = False
    failure: Failed | None = None
    hung: float | None = None
    """Seconds of silence for which it was killed."""

    def __post_init__(self) -> None:
        self.silence = Silence(self.patience / 4)

    def hear(self, message: Ready | Failed) -> None:
        """What it said about itself."""
        if isinstance(message, Failed):
            self.failure = message
            return
        self.ready = True
        self.silence = Silence(self.patience / 4)  # starting was judged by another limit

    def is_stuck(self, pulse: int, now: float, *, working: bool) -> bool:
        """Whether it has just been silent for too long; said once."""
        silence = self.silence.look(pulse, now)
        limit = self.patience if self.ready else self.start_patience
        if (working or not self.ready) and self.hung is None and silence > limit:
            self.hung = silence
            return True
        return False

    def fate(self) -> Fate:
        """How it ended."""
        told = self.failure.traceback if self.failure else None
        outside = self.failure is None and self.hung is None and self._is_from_outside()
        return Fate(self._cause(), str(self.log), self._tail(), told, outside)

    def _ending(self) -> str:
        """How it ended where it did not say so itself, and was not killed for its silence."""
        raise NotImplementedError

    def _is_from_outside(self) -> bool:
        """Whether that is how one ends that somebody else ends."""
        raise NotImplementedError

    def _place(self) -> str:
        """Where it ran, where that is not here; ends with a blank."""
        return ""

    def _cause(self) -> str:
        if self.failure is not None:
            return f"{self._place()}raised {self.failure.error}"
        if self.hung is not None:
            where = f"was killed; where it hung is in {self.log}"
            return f"{self._place()}gave no sign of life for {self.hung:.0f} s and {where}"
        return f"{self._place()}{self._ending()}"

    def _tail(self, lines: int = 12) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])
