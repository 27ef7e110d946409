"""Saved batches of every framework, read as one table; nothing in a file is ever run."""

from trimtab.records.dumps.loading import load_batch as load
from trimtab.records.dumps.tail import follow

__all__ = ["follow", "load"]
