"""The record of a run, as Arrow tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import pyarrow as pa

__all__ = ["SimulationRecord"]

_QUEUES = pa.schema([("time", pa.float64()), ("node", pa.string()), ("waiting", pa.int64())])
_DELIVERIES = pa.schema(
    [
        ("time", pa.float64()),
        ("node", pa.string()),
        ("client", pa.string()),
        ("delay", pa.float64()),
    ]
)
_TRAFFIC = pa.schema(
    [("sender", pa.string()), ("receiver", pa.string()), ("what", pa.string()), ("n", pa.int64())]
)
_WORK = pa.schema([("node", pa.string()), ("kind", pa.string()), ("units", pa.float64())])


class SimulationRecord:
    """Records a simulation while it runs; the tables are available at any time."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, str, int]] = []
        self.delivered: list[tuple[float, str, str, float, object]] = []  # the message is last
        self.messages: Counter[tuple[str, str, str]] = Counter()
        self.units: defaultdict[tuple[str, str], float] = defaultdict(float)

    def queues(self) -> pa.Table:
        """The number of inputs waiting at a node at each change, without the one being served."""
        return _table(self.waiting, _QUEUES)

    def deliveries(self) -> pa.Table:
        """Each delivery to a client, with its delay since publication."""
        return _table([found[:-1] for found in self.delivered], _DELIVERIES)

    def traffic(self) -> pa.Table:
        """Messages between nodes: "arrived", "lost" by the network, "dropped" by the node."""
        return _table([(*key, n) for key, n in sorted(self.messages.items())], _TRAFFIC)

    def work(self) -> pa.Table:
        """The work done by each node, by kind."""
        return _table([(*key, units) for key, units in sorted(self.units.items())], _WORK)


def _table(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(found, kind) for found, kind in zip(columns, schema.types, strict=True)]
    return pa.table(arrays, schema=schema)
