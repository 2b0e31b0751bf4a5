"""Self-contained HTML pages about plans, runs and sweeps."""

from distributary.report.page import render_report
from distributary.report.results import Report
from distributary.report.run_page import render_run

__all__ = ["Report", "render_report", "render_run"]
