"""One pure function per middleware: plan and network in, file names and bytes out."""

from distributary.export.formats.aeron import aeron_files
from distributary.export.formats.csv import csv_files
from distributary.export.formats.cyclonedds import cyclonedds_files
from distributary.export.formats.nats import MANY_MAPPINGS, nats_files

__all__ = ["MANY_MAPPINGS", "aeron_files", "csv_files", "cyclonedds_files", "nats_files"]
