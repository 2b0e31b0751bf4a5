"""A plan as configuration that real middleware takes: addresses, subjects, topics, channels."""

from distributary.export.exporting import FORMATS, ExportFormat, export_files
from distributary.export.names import escape_name, unescape_name
from distributary.export.network import Network
from distributary.export.spreadsheets import guard_spreadsheets

__all__ = [
    "FORMATS",
    "ExportFormat",
    "Network",
    "escape_name",
    "export_files",
    "guard_spreadsheets",
    "unescape_name",
]
