"""ROLL: its corrections, losses and advantages read as ours."""

from trimtab.dialects.roll.correction import DIALECT

__all__ = ["DIALECT"]
