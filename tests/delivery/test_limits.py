"""Each limit on what packets can make grow, one by one, and how forged records are found out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from distributary.delivery import Gap, JoinGroup, Messages, ReceiverParams, Unserved
from distributary.delivery.authentication import Authenticator
from distributary.delivery.directory_wire import (
    MOST_STREAMS,
    Block,
    FlowEntry,
    MarkRecord,
    Place,
    Record,
    RouteRecord,
    SwitchRecord,
    encode_block,
    encode_record,
    flow_key,
)
from distributary.delivery.errors import DirectoryFullError
from distributary.delivery.packing import Packer
from distributary.delivery.routes import publisher_number
from distributary.delivery.wire import (
    Header,
    PacketKind,
    StreamPosition,
    encode_heartbeat,
    encode_ranges,
)
from tests.delivery.machines import delivered, sends, simple_plan, start_sender
from tests.delivery.storms import SENDER, Exchange, find_sizes

PLAN = simple_plan([0, 0, 1], [0, 1])
PARAMS = ReceiverParams(missing_ranges=20)


def forge(
    kind: PacketKind, body: bytes, items: int, stream: int = 0xFFFF_FFFF, n: int = 0
) -> bytes:
    """A packet that claims to be of the publisher of an `Exchange`."""
    number = publisher_number("publisher")
    header = Header(kind, 0, items, number, stream, incarnation=5, sequence=n)
    return Authenticator().encode_packet(header, body)


def forge_records(packet: int, number: int, records: Iterable[Record]) -> bytes:
    packer = Packer(60_000, 0xFFFF)
    for at, record in enumerate(records):
        kind, body = encode_record(record)
        packer.add(kind, number + at, body, 0.0)
    items, body = packer.take()
    return forge(PacketKind.DATA, body, items, stream=0, n=packet)


def forge_block(as_of: int, part: int, parts: int, *entries: FlowEntry) -> bytes:
    body = encode_block(Block(as_of, 0, part, parts, entries))
    return forge(PacketKind.BLOCK, body, len(entries))


def take(exchange: Exchange, packet: bytes) -> None:
    exchange.perform(exchange.receiver.on_packet(packet, exchange.now, SENDER))


def over_limit(exchange: Exchange) -> int:
    return exchange.receiver.statistics.over_limit


def test_heartbeats_do_not_add_ranges_without_end() -> None:
    exchange = Exchange(PLAN, ["f0"], PARAMS)
    for last in range(2, 4_000, 2):
        position = StreamPosition(1, False, 1, last)
        take(exchange, forge(PacketKind.HEARTBEAT, encode_heartbeat([position]), 1))
        message = b"\0\0\0\0" + bytes(4) + (last + 1).to_bytes(8, "little")
        take(exchange, forge(PacketKind.DATA, message, 1, stream=1, n=last + 1))
        exchange.run(0.0)
    assert exchange.receiver.statistics.missing_ranges <= 20
    assert over_limit(exchange) > 0
    assert [gap for gap in exchange.seen if isinstance(gap, Gap)]


def test_a_block_of_many_parts_is_kept_without_what_nobody_wants() -> None:
    exchange = Exchange(PLAN, ["f0"], PARAMS)
    exchange.perform(exchange.receiver.subscribe(["f7"], exchange.now))
    others = tuple(FlowEntry(flow_key(f"other {at}"), at, (Place(at + 1, at),)) for at in range(30))
    places = tuple(Place(at + 1, at) for at in range(100))
    wanted = FlowEntry(flow_key("f7"), 7, places, None, continued=True)
    for part in range(2_000):
        take(exchange, forge_block(1_000, part, 65_535, *others))
    for part in range(2_000, 2_100):
        moved = tuple(place._replace(stream=place.stream + 100 * part) for place in places)
        take(exchange, forge_block(1_000, part, 65_535, wanted._replace(places=moved)))
    sizes = find_sizes(exchange.receiver)
    assert sizes["_Parts.came"] == 2_100
    assert sizes["_Parts.entries"] == 1
    assert sizes["_Parts.entries[].places"] == 1_024
    assert over_limit(exchange) > 0
    exchange.run(3.0)  # the true block comes, and replaces the one that never was complete
    assert exchange.receiver.unserved == ("f7",)
    assert "_Parts.came" not in find_sizes(exchange.receiver)


def test_parts_of_all_blocks_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distributary.delivery.lookup._MOST_PARTS", 50)
    plan = simple_plan([0] * 200, [0])
    exchange = Exchange(plan, ["f0"], PARAMS)
    exchange.perform(exchange.receiver.subscribe(plan.flows, exchange.now))
    for part in range(20):
        for number in range(8):
            body = encode_block(Block(1_000, number, part, 65_535, ()))
            take(exchange, forge(PacketKind.BLOCK, body, 0))
    assert find_sizes(exchange.receiver)["DirectoryView._parts"] > 1
    (publisher,) = exchange.receiver._publishers
    assert sum(len(each.came) for each in publisher._view._parts.values()) <= 50
    assert over_limit(exchange) > 0
    exchange.run(3.0)
    assert set(exchange.receiver.following) == set(plan.flows)


def test_marks_and_records_behind_a_gap_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distributary.delivery.followed._MOST_MARKS", 50)
    exchange = Exchange(PLAN, ["f0"], PARAMS)
    marks = [MarkRecord(2, 1_000 - at, 7) for at in range(1_000)]
    take(exchange, forge_records(1, exchange.sender._log.record + 1, marks))
    (publisher,) = exchange.receiver._publishers
    assert len(publisher._marks) == 51
    assert 1 in publisher._marks  # the stream that is followed
    for packet in range(3, 1_200):
        take(exchange, forge_records(packet, 10_000 + 100 * packet, marks[:100]))
    sizes = find_sizes(exchange.receiver)
    assert sizes["IncomingJournal._held"] * 100 <= 65_536
    assert over_limit(exchange) > 500
    for packet in range(3_000, 5_000, 2):  # one range each
        take(exchange, forge_records(packet, 10**6 + packet, marks[:1]))
    assert find_sizes(exchange.receiver)["Gaps.ranges"] <= 20


def test_a_flow_that_moves_on_and_on_keeps_few_legs() -> None:
    """Each move waits for packets that never come."""
    exchange = Exchange(PLAN, ["f0"], PARAMS)
    number, before = exchange.sender._log.record, 1
    for packet, stream in enumerate(range(100, 200), 1):
        route = FlowEntry(flow_key("f0"), 0, (), (Place(stream, 1),))
        records = [RouteRecord(2, route), MarkRecord(2, before, 50), MarkRecord(2, stream, 0)]
        take(exchange, forge_records(packet, number + 1, [*records, SwitchRecord(2)]))
        number, before = number + 4, stream
    sizes = find_sizes(exchange.receiver)
    assert 2 < sizes["IncomingFlow.legs"] <= 16
    assert exchange.receiver.statistics.streams <= 17
    assert {gap.reason for gap in exchange.seen if isinstance(gap, Gap)} >= {"room"}


def test_no_more_streams_are_followed_than_allowed() -> None:
    plan = simple_plan([at % 10 for at in range(10)], list(range(10)))
    exchange = Exchange(plan, plan.flows, replace(PARAMS, streams=4))
    assert exchange.receiver.statistics.streams == 4
    assert len(exchange.joined) == 5  # and the control group
    reports = [each for each in exchange.seen if isinstance(each, Unserved)]
    assert reports[-1].flows == exchange.receiver.unserved
    assert len(exchange.receiver.unserved) == 6
    assert over_limit(exchange) == 6
    for flow in plan.flows:
        exchange.publish(flow, b"x")
    came = {flow for flow, _, _ in delivered(exchange.seen)}
    assert came | set(exchange.receiver.unserved) == set(plan.flows)
    assert len(came) == 4


@pytest.mark.parametrize("how", ["a record", "a later packet", "a block"])
def test_forged_news_of_the_directory_are_found_out(how: str) -> None:
    """A receiver that believed them would take what its publisher writes for old."""
    exchange = Exchange(PLAN, ["f0"], PARAMS)
    take(exchange, forge_records(1, 2, [SwitchRecord(1)]))  # is old
    if how == "a record":
        take(exchange, forge_records(1, 10**9, [SwitchRecord(9)]))
    elif how == "a later packet":
        take(exchange, forge_records(10**9, 10**9, [SwitchRecord(9)]))
    else:
        exchange.perform(exchange.receiver.subscribe(["f2"], exchange.now))
        entries = [FlowEntry(flow_key(f"f{at}"), at, (Place(1, 0),)) for at in (0, 2)]
        take(exchange, forge_block(10**9, 0, 1, *entries))
    exchange.run(3.0)
    exchange.seen.clear()
    exchange.pass_on(exchange.sender.change_plan(simple_plan([1, 0, 1], [0, 1]), exchange.now))
    exchange.run(2.0)
    assert exchange.receiver.version == 2
    exchange.publish("f0", b"after the move")
    assert [payload for _, _, payload in delivered(exchange.seen)] == [b"after the move"]


def test_a_stream_that_nobody_knows_is_looked_up_again() -> None:
    exchange = Exchange(PLAN, ["f0"], PARAMS)
    exchange.perform(exchange.receiver.subscribe(["f2"], exchange.now))
    as_of = exchange.sender._log.record
    entries = [FlowEntry(flow_key("f2"), 2, (Place(900, 9),))]
    take(exchange, forge_block(as_of, 0, 1, *entries))
    assert JoinGroup("group 9") in exchange.seen
    exchange.run(10.0)
    exchange.publish("f2", b"found")
    assert [payload for _, _, payload in delivered(exchange.seen)] == [b"found"]
    assert "group 9" not in exchange.joined


def test_the_highest_numbers_of_messages_and_packets_do_no_harm() -> None:
    exchange = Exchange(PLAN, ["f0"], PARAMS)
    for sequence in ((1 << 63) - 1, (1 << 63) - 2):
        message = bytes(8) + sequence.to_bytes(8, "little")
        for packet in (1, 2, (1 << 63) - 2, (1 << 63) - 1):
            take(exchange, forge(PacketKind.DATA, message, 1, stream=1, n=packet))
            exchange.run(1.0)
    position = StreamPosition(1, False, 1, (1 << 63) - 1)
    take(exchange, forge(PacketKind.HEARTBEAT, encode_heartbeat([position]), 1))
    exchange.run(30.0)
    assert exchange.receiver.statistics.malformed > 0
    assert sum(len(each) for each in exchange.seen if isinstance(each, Messages)) == 1
    assert exchange.receiver.statistics.missing_ranges == 0


def test_repairs_that_wait_are_limited() -> None:
    sender = start_sender(PLAN, rate=1e4, burst=1e3, queue_repairs=100, messages_per_packet=1)
    for at in range(300):
        sender.offer("f0", b"x", float(at))
    nak = forge(PacketKind.NAK, encode_ranges([(1, 300)]), 1, stream=1)
    for at in range(20):
        sender.on_message(f"address {at}", nak, 300.0)
    assert len(sender._outbox.repairs._queue) <= 100
    assert sender.statistics.over_limit > 0
    assert sender.statistics.curbed_naks > 0
    for at in range(5_000):
        sender.on_message(f"address {at}", nak, 301.0)
    assert len(sender._outbox.repairs._allowances) == 4_096
    assert sends(sender.on_timer("wake", 302.0))  # it goes on


def test_a_plan_that_needs_too_many_numbers_is_refused_and_the_old_one_stays() -> None:
    sender = start_sender(PLAN)
    sender.on_timer("wake", 1.0)
    sender._log.directory._streams = MOST_STREAMS - 2
    with pytest.raises(DirectoryFullError, match="restart the publisher"):
        sender.change_plan(simple_plan([0, 1, 2], [3, 4, 5]), 2.0)
    assert not sender.changing
    assert sends(sender.offer("f0", b"x", 2.0) + sender.flush(2.0), "group 0")


def test_names_that_no_plan_knows_are_not_remembered() -> None:
    sender = start_sender(PLAN)
    before = find_sizes(sender)
    rng = np.random.default_rng(0)
    for _ in range(1_000):
        request = forge(PacketKind.REQUEST, rng.bytes(8).hex().encode(), 0)
        sender.on_message("somewhere", request, 1.0)
    assert find_sizes(sender) == before
