"""The corrections a lab compares, by the names its tables use."""

from __future__ import annotations

import warnings

from trimtab.dialects.candidate import Candidate, parse_candidate
from trimtab.errors import ConfigWarning

TOKEN_MIS = "token-mis"
KPOP, K2_RS, SEQ_MAX_K3 = "kpop(phi=0.1)", "k2-rs(upper=0.02)", "seq-max-k3(upper=0.5)"
"""Bounds that act; the presets' own are their sources', with which these hardly ever do."""
GEO_WIDE = "geo-rs(lower=null,upper=2)"
GEO_WIDE_TOKEN_MIS = "geo-rs+token-mis(lower=null,upper=2)"

DEFAULTS = (
    "off",
    "token-tis",
    TOKEN_MIS,
    "icepop",
    KPOP,
    "seq-tis",
    "seq-mis",
    "geo-rs",
    "geo-rs(lower=0.9,upper=1.1)",
    GEO_WIDE,
    "geo-rs+token-mis",
    GEO_WIDE_TOKEN_MIS,
    "geo-rs+token-tis",
    K2_RS,
    "k3-rs",
    SEQ_MAX_K3,
    "veto",
    "m2po",
    "bypass-off",
)
"""Run where none is named."""


def parse_candidates(given: tuple[str, ...] | list[str] = ()) -> list[Candidate]:
    """Those named, each once, or the defaults."""
    if given:
        return [parse_candidate(each) for each in dict.fromkeys(given)]
    with warnings.catch_warnings():  # that `upper=2` hardly acts is what the lab is to show
        warnings.simplefilter("ignore", ConfigWarning)
        return [parse_candidate(each) for each in DEFAULTS]
