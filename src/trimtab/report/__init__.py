"""A run directory to one HTML file that needs no network; several to one that compares them.

run directory ─ read ─► Run ─► findings (learning, signs, filtering, mismatch, pace, supply; advice) ─┐
                         ├──► charts (panels of metrics, classes) ─► draw (chart, bars → figure)      ├─► page ─► report.html
                         └──► rollouts (tokens)                                                      ─┘   └──► compare ─► compare.html
"""

from __future__ import annotations

from trimtab.report.findings.finding import RunFinding
from trimtab.report.findings.table import findings_of
from trimtab.report.page import report_html
from trimtab.report.run import Run
from trimtab.report.write import write_charts, write_comparison, write_report

__all__ = ["Run", "RunFinding", "findings_of", "report_html", "write_charts", "write_comparison", "write_report"]
