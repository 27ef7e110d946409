"""What parity does not reach, and why; `make parity` prints it."""

from __future__ import annotations

NOT_RUN: dict[str, dict[str, str]] = {
    "verl loss": {},
    "verl advantage": {},
    "skyrl loss": {
        "clip_cov": "its bounds meet advantages already divided by the token count; `read` gives a defect and no loss",
        "kl_cov": "its penalty is a sum beside a mean; `read` gives a defect and no loss",
        "cross_entropy": "supervised, no policy gradient",
    },
    "skyrl advantage": {},
}
"""Registered functions of the installed frameworks that no test runs; a test holds the list to their registries."""

RECORDED_ONLY = {
    "slime, nemo-rl, roll, prime-rl, open-instruct": "no wheel that imports on a CPU: recorded outputs only, no made-up batches",
    "miles, Tinker, Tunix": "no recorded outputs: tests/dialects holds each reading against its source in float64",
    "verl binary_kl (#6800), AReaL token_action (#1218)": "not merged: recorded from a reference written to the proposal",
}
"""Compared with recorded outputs, never live."""

OUT_OF_REACH = {
    "verl clip_cov, when it chooses some of its candidates": "the choice is random; run where it takes all of them",
    "SkyRL gae with gaps in the mask": "it reads the values of masked tokens, which here can change nothing; run without gaps",
    "OpenRLHF binary_kl gate on tokens": "as shipped, float32 rounding decides about tiny divergences",
    "KL terms that SkyRL, OpenRLHF and NeMo-RL add outside their loss functions": "inside trainers that need an engine",
    "AReaL prox_logp_method other than recompute": "needs the version of each token; `read` says so in a finding",
    "TRL vespo with weights of sequences": "its trainer refuses them, and so does `read`",
    "AReaL m2_threshold with rejection_sampling, ms-swift real, TRL top_entropy_quantile below 1": "`read` refuses them",
    "optimiser steps split over ranks or micro-batches, bfloat16, non-finite log-probs": "our own laws, not parity",
}
"""Settings and conditions that are left out."""
