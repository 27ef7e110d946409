"""What Ray can be asked, where samplers are its actors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from trimtab.config.base import Config, Number

Amount = Annotated[Number, Field(ge=0)]


class Ray(Config):
    """Samplers on a cluster (`backend: ray`)."""

    address: str | None = Field(
        default=None,
        description="Of a running cluster, HOST:PORT or `auto`. If not set: the run starts one on this machine, and ends it.",
    )
    cpus: Amount = Field(default=1.0, description="CPUs that Ray sets aside for a sampler.")
    gpus: Amount = Field(default=0.0, description="GPUs that Ray sets aside for a sampler, and lets it see.")
    resources: Mapping[str, Amount] = Field(
        default={}, description="Further resources that the node of a sampler has to have, such as `big: 1`."
    )
    verifiers: Annotated[int, Field(strict=True, ge=0)] = Field(
        default=0,
        description="Actors of one CPU that score responses, each one group at a time, with the verifiers' processes on its own node. "
        "0: `task.workers` on the learner's machine.",
    )
    store: Annotated[Number, Field(gt=0)] | None = Field(
        default=None,
        description="GB of shared memory for weights and results, on a cluster that the run starts. If not set: what Ray takes.",
    )
