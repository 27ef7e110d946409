"""Logs of other trainers: curves by name, and the settings where a log holds them. Only TensorBoard needs a library."""

from trimtab.records.logs.log_files import read_log_files
from trimtab.records.logs.logged_curves import Log, LoggedCurve

__all__ = ["Log", "LoggedCurve", "read_log_files"]
