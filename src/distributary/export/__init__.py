"""A plan as configuration that real middleware takes: addresses, subjects, topics, channels."""

from distributary.export.addresses import DEFAULT_BASE, GroupAddress, assign_addresses
from distributary.export.exporting import FORMATS, ExportFormat, export_files
from distributary.export.names import escape_name, unescape_name
from distributary.export.network import DEFAULT_PORT, Network
from distributary.export.spreadsheets import guard_spreadsheets

__all__ = [
    "DEFAULT_BASE",
    "DEFAULT_PORT",
    "FORMATS",
    "ExportFormat",
    "GroupAddress",
    "Network",
    "assign_addresses",
    "escape_name",
    "export_files",
    "guard_spreadsheets",
    "unescape_name",
]
