"""slime: its corrections, losses and advantages read as ours."""

from trimtab.dialects.slime.correction import DIALECT

__all__ = ["DIALECT"]
