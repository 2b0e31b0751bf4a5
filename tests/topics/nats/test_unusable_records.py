"""Nothing that a peer says, and no record, keeps a service from starting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from distributary.errors import StateError
from distributary.machines.real.store import Store
from distributary.topics.codec import Beat, Create, Put, decode, encode
from distributary.topics.messages import Join, Leave, Settled
from tests.topics.hosting import StoredHost

LARGEST = 2**64 - 1


def open_host(store: Store) -> StoredHost:
    host = StoredHost(store)
    host.perform(host.start(1.0))
    return host


def hear(host: StoredHost, to: str, message: Any) -> None:
    """What a service does with bytes from a peer."""
    try:
        sender, said = decode(encode("s", message))
    except ValueError:
        return
    host.take(sender, to, said, 1.0)


@pytest.mark.parametrize("number", [LARGEST, 2**63, -1])
def test_a_peer_with_absurd_numbers_does_not_keep_a_service_from_starting(
    number: int, tmp_path: Path
) -> None:
    with Store(tmp_path) as store:
        host = open_host(store)
        hear(host, "topic/t", Create(1.0))
        for to in ("topic/t", "cluster/1/t"):
            hear(host, "service", Beat(number, True))
            hear(host, to, Join(1))
            hear(host, to, Join(number))
            hear(host, to, Settled(number))
            hear(host, "topic/t", Put(number, number, b""))
            host.perform(host.bury(50.0, 10.0))
            hear(host, to, Leave(number))
    with Store(tmp_path) as store:
        host = open_host(store)
        assert host.store.reports == []
        host.perform(host.bury(100.0, 10.0))


RECORDS = {
    "a death of the last generation": ["dead", "s", LARGEST, 1.0],
    "an event of a topic that is not there": ["accepted", "topic/none", "s#1", 1, b"", 1.0],
    "a state that is none": ["patch", "topic/t", {"next_number": "seven"}, {}, {}],
    "a member that is none": ["patch", "topic/t", {}, {"s": 7}, {}],
    "too few fields": ["thrown"],
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_that_cannot_be_replayed_is_set_aside_and_reported_once(
    record: list[Any], tmp_path: Path
) -> None:
    data = msgspec.msgpack.encode(record)
    with Store(tmp_path) as store:
        host = open_host(store)
        hear(host, "topic/t", Create(1.0))
        store.append([data])
        hear(host, "topic/t", Put(1, 1, b"after"))
    for reports in (1, 0):
        with Store(tmp_path) as store:
            host = open_host(store)
            assert [e.payload for e in host.topics["topic/t"].state.history] == [b"after"]
            assert len(host.store.reports) == reports
            assert all("1 record cannot be replayed" in said for said in host.store.reports)
            host.perform(host.bury(100.0, 10.0))
    assert (tmp_path / "state.set-aside").read_bytes() == data


def test_a_record_of_a_kind_that_only_another_version_knows_is_told(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        open_host(store)
        store.append([msgspec.msgpack.encode(["new in version 9", 1])])
    with Store(tmp_path) as store, pytest.raises(StateError, match="does not understand"):
        open_host(store)
