"""The rollout record and the run directory: parquet and JSONL with a versioned schema.

run.json         schema, trimtab's version, when it was made, status; written last when a run is made
config.yaml      the resolved settings
metrics.jsonl    one line of metrics per step
events.jsonl     warnings, faults, restarts, drops, the stop
rollouts/        step-000010.parquet holds what was trained on in steps 10 to 19 (`record.every` steps)
checkpoints/     step-000040/, see `trimtab.train.checkpoint`
report.html      written by `trimtab.report`
lock             held by the process that writes the run
"""

from trimtab.records.run import RunDirectory, free_name
from trimtab.records.schema import SCHEMA, RolloutRow, rows_from, table_of

__all__ = ["SCHEMA", "RolloutRow", "RunDirectory", "free_name", "rows_from", "table_of"]
