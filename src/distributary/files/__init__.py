"""Readers and writers of the tables and of plan folders."""

from distributary.files.constraints import read_flow_sets, read_pins, read_receiver_caps
from distributary.files.demand import (
    Intake,
    ReadDemand,
    read_demand,
    read_interest,
    read_labels,
    read_rates,
    write_interest,
    write_rates,
)
from distributary.files.documents import (
    evaluation_document,
    plan_document,
    solver_document,
)
from distributary.files.fingerprints import fingerprint
from distributary.files.plans import StoredPlan, read_plan, read_previous, write_plan
from distributary.files.replacing import replaced_file, replaced_folder

__all__ = [
    "Intake",
    "ReadDemand",
    "StoredPlan",
    "evaluation_document",
    "fingerprint",
    "plan_document",
    "read_demand",
    "read_flow_sets",
    "read_interest",
    "read_labels",
    "read_pins",
    "read_plan",
    "read_previous",
    "read_rates",
    "read_receiver_caps",
    "replaced_file",
    "replaced_folder",
    "solver_document",
    "write_interest",
    "write_plan",
    "write_rates",
]
