"""SkyRL: its corrections, losses and advantages read as ours."""

from trimtab.dialects.skyrl.correction import DIALECT

__all__ = ["DIALECT"]
