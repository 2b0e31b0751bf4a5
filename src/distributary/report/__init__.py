"""Results in, one self-contained HTML page out."""

from distributary.report.page import render_report
from distributary.report.results import Compared, CurvePoint, Report

__all__ = ["Compared", "CurvePoint", "Report", "render_report"]
