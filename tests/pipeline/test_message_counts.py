"""Messages in a window that moves on, against a plain sum over all rows."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.errors import InputError
from distributary.pipeline import message_counts
from distributary.pipeline.message_counts import MessageCounts

ROWS = st.dictionaries(
    st.tuples(st.sampled_from(["", "a", "b", "ü", "c"]), st.integers(-3, 12)),
    st.integers(1, 5) | st.just(2**55),
    max_size=8,
)


@pytest.mark.parametrize("spare", [0, 1024])  # numbered anew all the time, or never
@given(batches=st.lists(st.tuples(ROWS, st.integers(0, 2)), max_size=12))
def test_totals_are_sums_and_only_changes_are_told(
    spare: int, batches: list[tuple[dict[tuple[str, int], int], int]]
) -> None:
    counts, every, horizon, told = MessageCounts(), Counter[tuple[str, int]](), 0, Counter[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_counts, "_SPARE", spare)
        for rows, forward in batches:
            horizon += forward
            every.update(rows)
            table = pa.table(
                {
                    "flow": pa.array([flow for flow, _ in rows], pa.string()),
                    "slot": pa.array([slot for _, slot in rows], pa.int64()),
                    "messages": pa.array(list(rows.values()), pa.int64()),
                }
            )
            changes = counts.add(table, horizon)
            for row in changes.to_pylist():
                assert told[row["flow"]] != row["messages"]
                told[row["flow"]] = row["messages"]
            totals = Counter[str]()
            for (flow, slot), messages in every.items():
                totals[flow] += messages * (slot >= horizon)
            assert +told == +totals
            # Rows that came too late count no more, though a window never moves back.
            every = Counter({key: n for key, n in every.items() if key[1] >= horizon})


def test_more_messages_than_64_bits_hold_are_refused() -> None:
    counts = MessageCounts()
    row = {"flow": ["a", "b"], "slot": [0, 1], "messages": [2**61, 2**61]}
    counts.add(pa.table(row), 0)
    with pytest.raises(InputError, match="add up to 4,611,686,018,427,387,905"):
        counts.add(pa.table({"flow": ["c"], "slot": [1], "messages": [1]}), 0)


def test_messages_that_left_the_window_make_room() -> None:
    counts, told = MessageCounts(), []
    for slot in range(5):
        table = pa.table({"flow": ["a"], "slot": [slot], "messages": [2**61]})
        told.append(counts.add(table, slot - 1)["messages"].to_pylist())
    assert told == [[2**61], [2**62], [], [], []]
