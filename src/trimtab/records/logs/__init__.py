"""Logs of other trainers: curves by name, and the settings where a log holds them. Only TensorBoard needs a library."""

from trimtab.records.logs.log import Log, LoggedCurve
from trimtab.records.logs.opening import read_log_files

__all__ = ["Log", "LoggedCurve", "read_log_files"]
