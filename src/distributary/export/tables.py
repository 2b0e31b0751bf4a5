"""The tables of every export, flows and subscriptions, as CSV columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from distributary.model import IndexArray, Plan

__all__ = [
    "csv_bytes",
    "dictionary_column",
    "placement_columns",
    "subscription_columns",
    "unicast_columns",
]


def csv_bytes(columns: Mapping[str, Any]) -> bytes:
    """The columns as UTF-8 CSV with a header line."""
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(pa.table(dict(columns)), sink)
    return bytes(sink.getvalue())


def dictionary_column(values: Sequence[str], codes: Any) -> Any:
    """A dictionary-encoded column of strings: row k holds `values[codes[k]]`."""
    return pa.DictionaryArray.from_arrays(
        pa.array(np.asarray(codes, np.int32)), pa.array(values, pa.string())
    )


def placement_columns(plan: Plan, copies: int = 1) -> dict[str, Any]:
    """Flow, session and group of each placement, each row repeated `copies` times."""
    return {
        "flow": dictionary_column(plan.flows, np.repeat(plan.placement_flow, copies)),
        **_session_columns(plan, plan.placement_session, copies),
    }


def subscription_columns(plan: Plan, copies: int = 1) -> dict[str, Any]:
    """Receiver, session and group of each subscription, each row repeated `copies` times."""
    return {
        "receiver": dictionary_column(
            plan.receivers, np.repeat(plan.subscription_receiver, copies)
        ),
        **_session_columns(plan, plan.subscription_session, copies),
    }


def unicast_columns(plan: Plan) -> dict[str, Any]:
    """Receiver and flow of each pair sent by unicast."""
    return {
        "receiver": dictionary_column(plan.receivers, plan.unicast_receiver),
        "flow": dictionary_column(plan.flows, plan.unicast_flow),
    }


def _session_columns(plan: Plan, session: IndexArray, copies: int) -> dict[str, Any]:
    return {
        "session": pa.array(np.repeat(session, copies)),
        "group": pa.array(np.repeat(plan.session_group[session], copies)),
    }
