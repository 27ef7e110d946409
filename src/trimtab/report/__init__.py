"""A run directory to one HTML file that needs no network."""

from trimtab.report.finding import Finding
from trimtab.report.findings import findings
from trimtab.report.page import html
from trimtab.report.run import Run

__all__ = ["Finding", "Run", "findings", "html"]
