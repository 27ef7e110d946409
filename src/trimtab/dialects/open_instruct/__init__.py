"""open-instruct: its corrections, losses and advantages read as ours."""

from trimtab.dialects.open_instruct.correction import DIALECT

__all__ = ["DIALECT"]
