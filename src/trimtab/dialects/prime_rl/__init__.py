"""prime-rl: its corrections, losses and advantages read as ours."""

from trimtab.dialects.prime_rl.correction import DIALECT

__all__ = ["DIALECT"]
