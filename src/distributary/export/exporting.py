"""The export formats by name, their settings, and the files they make of a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from distributary.export.formats import aeron_files, csv_files, cyclonedds_files, nats_files
from distributary.export.network import Network
from distributary.model import Plan

__all__ = ["FORMATS", "ExportFormat", "export_files"]


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """An export format: its label, and the `Network` settings that apply to it."""

    label: str
    files: Callable[[Plan, Network], dict[str, bytes]]
    settings: frozenset[str]


FORMATS = {
    "csv": ExportFormat("plain tables", csv_files, frozenset({"base", "port", "pairs"})),
    "cyclonedds": ExportFormat(
        "Eclipse Cyclone DDS", cyclonedds_files, frozenset({"base", "pairs"})
    ),
    "nats": ExportFormat("NATS", lambda plan, _: nats_files(plan), frozenset()),
    "aeron": ExportFormat("Aeron", aeron_files, frozenset({"base", "port", "pairs", "interfaces"})),
}


def export_files(plan: Plan, format_name: str, network: Network | None = None) -> dict[str, bytes]:
    """The configuration files for a plan: file names and contents.

    The same plan and network give the same bytes. The plan's validity is not checked.
    """
    if format_name not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, not {format_name!r}")
    return FORMATS[format_name].files(plan, Network() if network is None else network)
