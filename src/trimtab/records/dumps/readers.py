"""Every reader, in the order in which a file is tried; of one family the one that knows most comes first."""

from __future__ import annotations

from trimtab.records.dumps.columns import COLUMNS
from trimtab.records.dumps.miles import MILES_DASHBOARD, MILES_LOSS
from trimtab.records.dumps.nemo_rl import NEMO_RL, NEMO_RL_FIRST
from trimtab.records.dumps.open_instruct import OPEN_INSTRUCT
from trimtab.records.dumps.own import OWN_RUN
from trimtab.records.dumps.prime_rl import PRIME_RL_EXPORT, PRIME_RL_TRACES, VERIFIERS
from trimtab.records.dumps.reader import DumpReader
from trimtab.records.dumps.recorded import RECORDED
from trimtab.records.dumps.roll import ROLL
from trimtab.records.dumps.skyrl import SKYRL
from trimtab.records.dumps.slime import SLIME_RANKS, SLIME_ROLLOUT, SLIME_TRAIN
from trimtab.records.dumps.text_only import AREAL, MS_SWIFT, TRL
from trimtab.records.dumps.verl import VERL_PROTO, VERL_QUEUE, VERL_TEXT

READERS: tuple[DumpReader, ...] = (
    *(OWN_RUN, RECORDED, NEMO_RL, NEMO_RL_FIRST, PRIME_RL_TRACES, PRIME_RL_EXPORT, VERIFIERS, OPEN_INSTRUCT),
    *(SLIME_TRAIN, SLIME_RANKS, MILES_LOSS, SLIME_ROLLOUT, MILES_DASHBOARD, SKYRL, VERL_QUEUE, VERL_PROTO, VERL_TEXT),
    *(ROLL, AREAL, TRL, MS_SWIFT, COLUMNS),
)
FRAMEWORKS = tuple(dict.fromkeys(reader.framework for reader in READERS))
