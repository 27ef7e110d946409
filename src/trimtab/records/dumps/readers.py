"""Every reader, in the order in which a file is tried."""

from __future__ import annotations

from trimtab.records.dumps.columns import COLUMNS
from trimtab.records.dumps.nemo_rl import NEMO_RL
from trimtab.records.dumps.own import OWN_RUN
from trimtab.records.dumps.reader import DumpReader

READERS: tuple[DumpReader, ...] = (OWN_RUN, NEMO_RL, COLUMNS)
FRAMEWORKS = tuple(dict.fromkeys(reader.framework for reader in READERS))
