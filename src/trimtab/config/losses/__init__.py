"""What the optimiser can be asked to descend: a Loss, a Reduction, and the KL and entropy terms beside them.

ρ = current / anchor, per token; the anchor is proximal (decoupled, or no correction) or behavior (bypass). A = advantage.
sg = detached. GRPO, DAPO and Dr.GRPO are `Clip` with another reduction, GPG is `Reinforce` with its own advantages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast, get_args

from pydantic import Field

from trimtab.config.losses.base import REDUCTIONS as REDUCTIONS
from trimtab.config.losses.base import EntropyBonus as EntropyBonus
from trimtab.config.losses.base import KlPenalty as KlPenalty
from trimtab.config.losses.base import Mode as Mode
from trimtab.config.losses.base import Objective as Objective
from trimtab.config.losses.base import Reduction as Reduction
from trimtab.config.losses.base import kind_of as kind_of
from trimtab.config.losses.base import reduction_of_mode as reduction_of_mode
from trimtab.config.losses.clipped import Aspo as Aspo
from trimtab.config.losses.clipped import Bapo as Bapo
from trimtab.config.losses.clipped import Clip as Clip
from trimtab.config.losses.clipped import ClipCov as ClipCov
from trimtab.config.losses.clipped import Fipo as Fipo
from trimtab.config.losses.clipped import Gmpo as Gmpo
from trimtab.config.losses.clipped import Gspo as Gspo
from trimtab.config.losses.clipped import Luspo as Luspo
from trimtab.config.losses.unclipped import Cispo as Cispo
from trimtab.config.losses.unclipped import DppoKl as DppoKl
from trimtab.config.losses.unclipped import DppoTv as DppoTv
from trimtab.config.losses.unclipped import Dro as Dro
from trimtab.config.losses.unclipped import ImportancePg as ImportancePg
from trimtab.config.losses.unclipped import KlCov as KlCov
from trimtab.config.losses.unclipped import Reinforce as Reinforce
from trimtab.config.losses.unclipped import Sapo as Sapo
from trimtab.config.losses.unclipped import Topr as Topr
from trimtab.config.losses.unclipped import Vespo as Vespo
from trimtab.errors import ConfigError, UnknownNameError, nearest

AnyLoss = (
    Clip | Gspo | Luspo | Cispo | Sapo | Gmpo | ClipCov | KlCov | Reinforce | ImportancePg | DppoTv | DppoKl | Topr
) | (Vespo | Dro | Bapo | Aspo | Fipo)
Loss = Annotated[AnyLoss, Field(discriminator="kind")]
"""Any loss; as a field of another Config it is read by its `kind`."""
_RECIPE = "An advantage estimator or a recipe: the loss is 'clip', the advantages trimtab.advantages('grpo'), 'rloo', …"
_GRADIENT = "The plain policy gradient is 'reinforce', weighed by a ratio with gradient 'importance-pg'."
MEANT: dict[str, str] = {
    word: sentence
    for words, sentence in (
        ("ppo ppo-clip dual-clip vanilla pg-clip", "The clipped loss of PPO is 'clip'."),
        ("grpo dr-grpo drgrpo rloo dapo bnpo opo remax", _RECIPE),
        ("pg policy-gradient a2c", _GRADIENT),
    )
    for word in words.split()
}
"""What words of the field stand for that are no loss here."""
LOSSES: dict[str, type[Objective]] = {kind_of(each): each for each in get_args(AnyLoss)}
"""Every loss by name."""


def loss_from(settings: object) -> Objective:
    """The loss that a name, or plain settings with a `kind`, describe."""
    if isinstance(settings, Objective):
        return settings
    plain: object = {"kind": settings} if isinstance(settings, str) else settings
    if not isinstance(plain, Mapping) or "kind" not in plain:
        raise ConfigError(f"A loss needs a kind, got {settings!r}. {nearest('', LOSSES)}")
    kind = str(cast("Mapping[str, Any]", plain)["kind"])
    if kind not in LOSSES:
        raise UnknownNameError(f"There is no loss {kind!r}. {nearest(kind, LOSSES, MEANT)}")
    return LOSSES[kind].from_settings(cast("object", plain))
