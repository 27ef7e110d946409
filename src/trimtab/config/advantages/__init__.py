"""What an advantage can be: how rewards are shaped, which estimator reads them, and how the result is normalised."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import Field

from trimtab.config.advantages.base import BASELINE as BASELINE
from trimtab.config.advantages.base import WHITEN as WHITEN
from trimtab.config.advantages.base import Baseline as Baseline
from trimtab.config.advantages.base import Estimator as Estimator
from trimtab.config.advantages.base import Level as Level
from trimtab.config.advantages.base import Normalise as Normalise
from trimtab.config.advantages.base import Overlong as Overlong
from trimtab.config.advantages.base import Shaping as Shaping
from trimtab.config.advantages.base import Singleton as Singleton
from trimtab.config.advantages.sequence_level import Gdpo as Gdpo
from trimtab.config.advantages.sequence_level import Gpg as Gpg
from trimtab.config.advantages.sequence_level import Grpo as Grpo
from trimtab.config.advantages.sequence_level import LeaveOneOut as LeaveOneOut
from trimtab.config.advantages.sequence_level import MaxRl as MaxRl
from trimtab.config.advantages.sequence_level import Opo as Opo
from trimtab.config.advantages.sequence_level import PassK as PassK
from trimtab.config.advantages.sequence_level import Rloo as Rloo
from trimtab.config.advantages.token_level import Distillation as Distillation
from trimtab.config.advantages.token_level import Gae as Gae
from trimtab.config.advantages.token_level import Gaps as Gaps
from trimtab.config.advantages.token_level import OptimalToken as OptimalToken
from trimtab.config.advantages.token_level import ReinforcePlusPlus as ReinforcePlusPlus
from trimtab.config.advantages.token_level import ReMax as ReMax
from trimtab.config.advantages.token_level import RewardEstimator as RewardEstimator
from trimtab.config.advantages.token_level import Student as Student
from trimtab.errors import UnknownNameError, nearest

AnyEstimator = Annotated[
    Gae
    | Grpo
    | Rloo
    | LeaveOneOut
    | ReinforcePlusPlus
    | ReMax
    | Opo
    | Gpg
    | PassK
    | Gdpo
    | MaxRl
    | OptimalToken
    | Distillation,
    Field(discriminator="kind"),
]
"""The field type of a settings class that holds an estimator."""
ESTIMATORS: dict[str, type[Estimator]] = {
    each.model_fields["kind"].default: each for each in get_args(get_args(AnyEstimator)[0])
}
MEANT = {
    "group": "Rewards less the mean of the group, divided by its deviation, are 'grpo'.",
    "dr-grpo": "GRPO without the deviation is 'grpo' with std=False.",
    "drgrpo": "GRPO without the deviation is 'grpo' with std=False.",
    "dapo": "The advantages of DAPO are 'grpo'; its clip is the loss 'clip' with another upper side.",
    "ppo": "The advantages of PPO are 'gae'.",
    "reinforce-plus-plus": "Did you mean 'reinforce++'?",
    "loo": "Did you mean 'rloo' or 'leave-one-out'?",
    "max-rl": "Did you mean 'maxrl'?",
    "passk": "Did you mean 'pass@k'?",
}
"""What words of the field stand for that are no estimator here."""


def estimator(kind: str, **settings: Any) -> Estimator:
    """The estimator of that kind with these settings."""
    if kind not in ESTIMATORS:
        raise UnknownNameError(f"There is no advantage estimator {kind!r}. {nearest(kind, ESTIMATORS, MEANT)}")
    return ESTIMATORS[kind](**settings)
