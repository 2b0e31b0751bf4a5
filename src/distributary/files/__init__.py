"""Readers and writers of the tables and of plan folders."""

from distributary.files.demand import (
    Intake,
    read_interest,
    read_rates,
    write_interest,
    write_rates,
)
from distributary.files.fingerprints import fingerprint
from distributary.files.plans import StoredPlan, read_plan, write_plan

__all__ = [
    "Intake",
    "StoredPlan",
    "fingerprint",
    "read_interest",
    "read_plan",
    "read_rates",
    "write_interest",
    "write_plan",
    "write_rates",
]
