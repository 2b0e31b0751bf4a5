"""The flows of a plan on executors, in files that every task can read a part of.

Spark writes the flows once, in buckets by the hash of their name: who wants each flow, and its
rate. A flow's number is its place in the buckets, each sorted by name, and depends on the rows
alone. From then on tasks pass numbers of flows around, and each maps the files into its memory and
reads the flows that it needs; no round sorts, shuffles or writes the pairs again.

A bucket is written under another name and renamed, so a repeated task does no harm; `store.json`
is written last and says that all are there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from distributary.model import IndexArray, IntArray
from distributary.planning.things import Things

__all__ = ["FlowStore", "open_store", "replace_file", "store_flows"]

PAIRS_PER_BUCKET = 1_000_000
_MANIFEST = "store.json"
_WRITTEN = "bucket int, flows bigint, pairs bigint, weight bigint"

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class FlowStore:
    """The stored flows; `buckets` has the number and the flows of each bucket, in order."""

    folder: Path
    n_receivers: int
    pairs: int
    weight: int
    buckets: tuple[tuple[int, int], ...]

    @property
    def n_flows(self) -> int:
        """The number of flows."""
        return sum(flows for _, flows in self.buckets)

    def read_things(self, flows: IntArray) -> Things:
        """The receivers and weights of the flows with these numbers, which must ascend."""
        sizes, members, weight = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)], []
        first = 0
        for bucket, n in self.buckets:
            own = flows[np.searchsorted(flows, first) : np.searchsorted(flows, first + n)] - first
            first += n
            if not len(own):
                continue
            folder = _bucket_folder(self.folder, bucket)
            offsets, all_members, weights = (
                np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray)
                for name in ("offsets", "members", "weight")
            )
            stored = Things(self.n_receivers, offsets, all_members, weights).subset(own)
            sizes.append(np.diff(stored.offsets))
            members.append(stored.members)
            weight.append(stored.weight)
        return Things(
            self.n_receivers,
            np.concatenate(([0], np.cumsum(np.concatenate(sizes)))),
            np.concatenate(members),
            np.concatenate([np.zeros(0, np.int64), *weight]),
        )

    def read_weights(self) -> tuple[IntArray, IntArray]:
        """The weight of each flow, and how many receivers want it."""
        folders = [_bucket_folder(self.folder, bucket) for bucket, _ in self.buckets]
        weight = [np.load(folder / "weight.npy") for folder in folders]
        sizes = [np.diff(np.load(folder / "offsets.npy")) for folder in folders]
        return np.concatenate(weight), np.concatenate(sizes)

    def read_names(self) -> pa.Array:
        """The name of each flow."""
        folders = [_bucket_folder(self.folder, bucket) for bucket, _ in self.buckets]
        names = [pq.read_table(folder / "names.parquet")["flow"] for folder in folders]
        return pa.concat_arrays([chunk for name in names for chunk in name.chunks])


def store_flows(flows: DataFrame, n_receivers: int, pairs: int, folder: Path) -> FlowStore:
    """Store a frame of flow, weight and members (numbers of receivers, ascending), once."""
    manifest = folder / _MANIFEST
    if not manifest.exists():
        folder.mkdir(parents=True, exist_ok=True)
        n_buckets = max(1, pairs // PAIRS_PER_BUCKET)
        bucket = F.pmod(F.xxhash64("flow", F.lit(-1)), F.lit(n_buckets)).cast("int")
        spread = flows.withColumn("bucket", bucket).repartitionById(n_buckets, F.col("bucket"))
        rows = spread.mapInArrow(_make_writer(folder), _WRITTEN).collect()
        told = {
            "pairs": sum(row["pairs"] for row in rows),
            "weight": sum(row["weight"] for row in rows),
            "buckets": sorted((row["bucket"], row["flows"]) for row in rows),
        }
        replace_file(manifest, lambda path: path.write_text(json.dumps(told)))
    return open_store(folder, n_receivers)


def open_store(folder: Path, n_receivers: int) -> FlowStore:
    """The store of a folder that `store_flows` has written."""
    told = json.loads((folder / _MANIFEST).read_text())
    buckets = tuple((bucket, flows) for bucket, flows in told["buckets"])
    return FlowStore(folder, n_receivers, told["pairs"], told["weight"], buckets)


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file whole or not at all; `write` gets the path of a file beside it."""
    beside = path.with_name(f".{uuid4().hex}{path.suffix}")
    try:
        write(beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _bucket_folder(folder: Path, bucket: int) -> Path:
    return folder / f"bucket-{bucket:05d}"


def _make_writer(folder: Path) -> Callable[[Batches], Batches]:
    def write(batches: Batches) -> Batches:
        found = [batch for batch in batches if batch.num_rows]
        if not found:
            return
        table = pa.Table.from_batches(found).sort_by("flow").combine_chunks()
        members = table["members"].combine_chunks()
        sizes = members.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        weight = table["weight"].to_numpy()
        bucket = table["bucket"][0].as_py()
        place = _bucket_folder(folder, bucket)
        place.mkdir(parents=True, exist_ok=True)
        flat: IndexArray = members.flatten().to_numpy().astype(np.int32, copy=False)
        arrays = {
            "offsets": np.concatenate(([0], np.cumsum(sizes))),
            "members": flat,
            "weight": weight,
        }
        for name, array in arrays.items():
            replace_file(place / f"{name}.npy", partial(np.save, arr=array))
        names = table.select(["flow"])
        replace_file(place / "names.parquet", lambda path: pq.write_table(names, path))
        row = {
            "bucket": pa.array([bucket], pa.int32()),
            "flows": pa.array([len(table)], pa.int64()),
            "pairs": pa.array([len(flat)], pa.int64()),
            "weight": pa.array([int(weight.sum())], pa.int64()),
        }
        yield pa.RecordBatch.from_pydict(row)

    return write
