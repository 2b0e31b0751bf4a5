"""Readers and writers of tables and of plan folders."""

from distributary.files.bad_rows import BadRow, BadTablesError
from distributary.files.calibration import read_prices
from distributary.files.constraints import read_flow_sets, read_pins, read_receiver_caps
from distributary.files.content import (
    FilterTable,
    RefusedFilter,
    read_events,
    read_filter_texts,
    read_filters,
)
from distributary.files.demand import (
    Intake,
    ReadDemand,
    read_demand,
    read_interest,
    read_labels,
    read_rates,
    write_interest,
    write_quarantine,
    write_rates,
)
from distributary.files.documents import (
    evaluation_document,
    plan_document,
    price_document,
    solver_document,
    totals_document,
)
from distributary.files.fingerprints import fingerprint
from distributary.files.flow_filters import FlowFilters, read_flow_filters, write_flow_filters
from distributary.files.limits import (
    limits_document,
    list_profiles,
    parse_limits,
    read_limits,
    read_profile,
)
from distributary.files.plans import (
    StoredPlan,
    read_plan,
    read_previous,
    save_plan,
    write_plan,
)
from distributary.files.receivers import ReceiverTable, read_receivers
from distributary.files.replacing import replace_file, replace_folder
from distributary.files.stored_terms import StoredTerms, read_stored_terms
from distributary.files.tables import write_table

__all__ = [
    "BadRow",
    "BadTablesError",
    "FilterTable",
    "FlowFilters",
    "Intake",
    "ReadDemand",
    "ReceiverTable",
    "RefusedFilter",
    "StoredPlan",
    "StoredTerms",
    "evaluation_document",
    "fingerprint",
    "limits_document",
    "list_profiles",
    "parse_limits",
    "plan_document",
    "price_document",
    "read_demand",
    "read_events",
    "read_filter_texts",
    "read_filters",
    "read_flow_filters",
    "read_flow_sets",
    "read_interest",
    "read_labels",
    "read_limits",
    "read_pins",
    "read_plan",
    "read_previous",
    "read_prices",
    "read_profile",
    "read_rates",
    "read_receiver_caps",
    "read_receivers",
    "read_stored_terms",
    "replace_file",
    "replace_folder",
    "save_plan",
    "solver_document",
    "totals_document",
    "write_flow_filters",
    "write_interest",
    "write_plan",
    "write_quarantine",
    "write_rates",
    "write_table",
]
