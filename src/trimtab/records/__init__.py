"""The rollout record and the run directory: parquet and JSONL with a versioned schema."""
