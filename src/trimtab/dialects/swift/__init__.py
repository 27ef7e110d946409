"""ms-swift: its corrections, losses and advantages read as ours."""

from trimtab.dialects.swift.correction import DIALECT

__all__ = ["DIALECT"]
