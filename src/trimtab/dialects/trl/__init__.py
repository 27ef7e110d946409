"""TRL: its corrections, losses and advantages read as ours."""

from trimtab.dialects.trl.correction import DIALECT

__all__ = ["DIALECT"]
