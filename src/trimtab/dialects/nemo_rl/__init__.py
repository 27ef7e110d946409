"""NeMo-RL: its corrections, losses and advantages read as ours."""

from trimtab.dialects.nemo_rl.correction import DIALECT

__all__ = ["DIALECT"]
