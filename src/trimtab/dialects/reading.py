"""What a framework's settings mean in our terms, and what there is to say about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trimtab.config.advantages import Estimator, Normalise, Shaping
from trimtab.config.correction import Correction, Weight
from trimtab.config.losses import EntropyBonus, KlPenalty, Objective, Reduction

NOTHING = Correction(weight=Weight(level="one"))
"""Nothing is corrected."""
Level = Literal["note", "surprise", "defect", "risk"]
PartName = Literal["correction", "loss", "advantage"]


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing about a setting. `note`: good to know. `surprise`: rarely meant. `defect`: never meant. `risk`: dangerous
    as a whole, though every formula is right."""

    key: str
    level: Level
    text: str
    holds: str = ""
    """The version of the framework of which it was checked, and the release that mended it where one did."""
    source: str = ""
    """Where the framework's code does so: a path in its package and the symbol."""

    def __str__(self) -> str:
        return f"{self.level}: {self.key}: {self.sentence}"

    @property
    def sentence(self) -> str:
        """The text, and the version of which it holds."""
        return f"{self.text} ({self.holds}.)" if self.holds else self.text


@dataclass(frozen=True)
class Refusal:
    """A part of the settings that cannot be said in our terms, and why."""

    part: PartName
    text: str

    def __str__(self) -> str:
        return f"refused: {self.part}: {self.text}"


@dataclass(frozen=True)
class Reading:
    """Settings of a framework as ours; None where the settings do not speak of it, or the part is among `refused`."""

    framework: str
    correction: Correction | None = None
    loss: Objective | None = None
    reduction: Reduction | None = None
    kl: KlPenalty | None = None
    kl_to: Literal["reference", "behavior", "teacher"] = "reference"
    """What the KL term compares current with: pass those log-probs as `reference`."""
    entropy: EntropyBonus | None = None
    advantage_scale: float = 1.0
    """Multiply the advantages by this before the loss."""
    rows: Literal["with tokens", "all"] = "with tokens"
    """Whether means over sequences also count rows without tokens: pass a Denominator with that count."""
    advantage: Estimator | None = None
    shaping: tuple[Shaping, ...] = ()
    """Steps from rewards to rewards: apply all but the last with `shaped`, hand the last to `advantages`."""
    advantage_norm: Normalise | None = None
    """Normalisation of the finished advantages in which every row votes: apply with `normalised`."""
    reward_kl: KlPenalty | None = None
    """A KL penalty paid in the reward: its negative goes to `advantages` as `token_rewards`."""
    advantage_clip: float | None = None
    """Hold the finished, normalised advantages within ± this."""
    logged_kl: Literal["k1", "k2", "k3"] = "k3"
    """The estimate of the KL between sampler and trainer in what the framework logs, where its users choose it."""
    version: str = field(default="", compare=False)
    """The framework's version that is read here, or that the keys show where they are those of another."""
    uncorrected: bool = field(default=False, compare=False)
    """Whether a run's settings leave the correction to the framework, which then has none; `correction` is None."""
    findings: tuple[Finding, ...] = ()
    refused: tuple[Refusal, ...] = ()
    """Parts that the settings speak of and that could not be read; the others stand."""
    said: tuple[str, ...] = field(default=(), repr=False)
    """The keys that were read, under their full names."""
    defaults: Reading | None = field(default=None, repr=False, compare=False)
    """What the framework computes by itself in the parts that a whole file of its own leaves out; None where something else may say it."""
    values: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)
    """What they hold, by what the rules call them: a framework's settings written back keep its user's words."""

    @property
    def rule(self) -> Correction | None:
        """The correction, also where it is none because nothing asks for one; None where it is not known."""
        return NOTHING if self.uncorrected else self.correction

    @property
    def defects(self) -> tuple[Finding, ...]:
        """The findings of level defect."""
        return tuple(each for each in self.findings if each.level == "defect")


@dataclass(frozen=True)
class Offer:
    """A correction near one that a framework cannot say: what it is, and the framework's settings for it."""

    words: str
    correction: Correction
    settings: dict[str, Any]


@dataclass(frozen=True)
class Omission:
    """What of a part is not in the framework's settings, or comes out otherwise under them."""

    part: PartName
    key: str
    """The framework's key it would hang on; empty where there is none."""
    text: str
    offers: tuple[Offer, ...] = ()
    """What the framework could say instead."""
    whole: bool = True
    """Whether nothing of the part is written."""

    def __str__(self) -> str:
        return f"{self.label}: {self.key or self.part}: {self.text}"

    @property
    def label(self) -> str:
        """In a word: `left out`, or `changed` where the framework comes near."""
        return "left out" if self.whole else "changed"


@dataclass(frozen=True)
class Writing:
    """Our values in a framework's keys, and what the reader of those keys should know."""

    framework: str
    settings: dict[str, Any]
    """Nested as in the framework's own files."""
    findings: tuple[Finding, ...] = ()
    omissions: tuple[Omission, ...] = ()
    """What the framework cannot say; empty where these settings compute what was asked for."""
