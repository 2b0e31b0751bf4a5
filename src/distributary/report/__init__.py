"""Results in, one self-contained HTML page out."""

from distributary.report.page import render_report
from distributary.report.results import Compared, CurvePoint, Report
from distributary.report.run_page import render_run
from distributary.report.study import compare_algorithms, cost_curve

__all__ = [
    "Compared",
    "CurvePoint",
    "Report",
    "compare_algorithms",
    "cost_curve",
    "render_report",
    "render_run",
]
