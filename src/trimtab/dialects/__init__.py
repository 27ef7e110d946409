"""Other frameworks' configurations read as ours, and ours written as theirs; no torch."""

from trimtab.dialects.frameworks import DIALECTS
from trimtab.dialects.reader import read
from trimtab.dialects.reading import Finding, Reading, Writing
from trimtab.dialects.writing.write import write

__all__ = ["DIALECTS", "Finding", "Reading", "Writing", "read", "write"]
