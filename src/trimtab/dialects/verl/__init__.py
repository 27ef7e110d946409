"""verl: its corrections, losses and advantages read as ours."""

from trimtab.dialects.verl.correction import DIALECT

__all__ = ["DIALECT"]
