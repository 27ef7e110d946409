"""OpenRLHF: its corrections, losses and advantages read as ours."""

from trimtab.dialects.openrlhf.correction import DIALECT

__all__ = ["DIALECT"]
