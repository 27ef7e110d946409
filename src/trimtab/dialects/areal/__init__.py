"""AReaL: its corrections, losses and advantages read as ours."""

from trimtab.dialects.areal.correction import DIALECT

__all__ = ["DIALECT"]
