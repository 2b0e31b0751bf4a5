"""Events by their content: each receiver gets exactly what its filters match, once and in order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from distributary.delivery.content import (
    Event,
    EventFilter,
    EventMessage,
    EventSorter,
    check_content,
)
from distributary.delivery.content_routes import (
    ContentRoutes,
    RouteKind,
    flows_for_condition,
    flows_for_owner,
)
from distributary.delivery.udp.events import read_events
from distributary.errors import InputError
from distributary.files import FlowFilters, read_flow_filters
from distributary.matching import parse_filter
from distributary.model import Attribute, AttributeKind, Filter, Schema
from tests.delivery.content_plans import plan_content, save_content
from tests.matching.schemas import EVENTS, SCHEMA, conditions, residual_tests, single_tests


def usable(texts: Iterable[str]) -> list[str]:
    """The texts that parse; a random comparison may have constants that its column cannot have."""
    found = []
    for text in texts:
        try:
            parse_filter(text, SCHEMA)
        except InputError:
            continue
        found.append(text)
    return found


@st.composite
def tables(draw: st.DrawFn) -> FlowFilters:
    """Any table: flows of any sets of filters, and every filter in some flow."""
    drawn = draw(st.lists(conditions(single_tests() | residual_tests()), min_size=1, max_size=6))
    texts = sorted(set(usable(drawn)))
    assume(texts)
    sets = draw(st.lists(st.sets(st.sampled_from(texts), min_size=1), max_size=5))
    left = set(texts).difference(*sets) if sets else set(texts)
    flows = {f"f{at}": found for at, found in enumerate([*sets, left]) if found}
    own = {
        flow: found if draw(st.booleans()) else draw(st.sets(st.sampled_from(sorted(found))))
        for flow, found in flows.items()
    }
    owners: dict[str, set[str]] = {}
    for text in texts:
        for name in draw(st.sets(st.sampled_from("pqrs"), min_size=1)):
            owners.setdefault(name, set()).add(text)
    return FlowFilters.of(SCHEMA, flows, owners, own)


def refuse(error: InputError) -> None:
    raise error


def sort_all(table: FlowFilters, events: list[dict[str, object]]) -> list[EventMessage]:
    rows = [Event(at, values, str(at).encode()) for at, values in enumerate(events)]
    half = len(rows) // 2
    sorter = EventSorter(table)
    return [*sorter.sort(rows[:half], refuse), *sorter.sort(rows[half:], refuse)]


def receive(
    table: FlowFilters,
    filters: Iterable[Filter],
    flows: Iterable[str],
    sent: list[EventMessage],
) -> list[int]:
    """The numbers of the events that somebody who subscribes to some flows prints."""
    subscribed = set(flows)
    found = EventFilter(table, filters, subscribed)
    messages = [message for message in sent if message.flow in subscribed]
    events = [found.find(message.flow, 1, message.payload) for message in messages]
    assert not found.foreign
    return [int(event.payload) for event in events if event is not None]


def matching(events: list[dict[str, object]], filters: Iterable[Filter]) -> list[int]:
    listed = list(filters)
    keys = [SCHEMA.keys(event) for event in events]
    return [at for at, each in enumerate(keys) if any(f.matches(each) for f in listed)]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(tables(), st.integers(0, 600), conditions(single_tests() | residual_tests()))
def test_each_receiver_gets_exactly_the_events_that_its_filters_match(
    table: FlowFilters, first: int, adhoc: str
) -> None:
    events = EVENTS[first : first + 60]
    sent = sort_all(table, events)
    for name, numbers in table.owners.items():
        filters = [table.filters[at] for at in numbers]
        got = receive(table, filters, flows_for_owner(table, name), sent)
        assert got == matching(events, filters)
    if usable([adhoc]):
        condition = parse_filter(adhoc, SCHEMA)
        flows, complete = flows_for_condition(table, condition)
        wanted = matching(events, [condition])
        published = set(matching(events, table.filters))
        assert receive(table, [condition], flows, sent) == [n for n in wanted if n in published]
        assert not complete or set(wanted) <= published


@st.composite
def routed(draw: st.DrawFn) -> tuple[FlowFilters, frozenset[int]]:
    """A table of simple filters, and a set of them."""
    schema = Schema((Attribute("a", AttributeKind.INTEGER),))
    texts = [f"a = {at}" for at in range(draw(st.integers(1, 5)))]
    sets = draw(st.lists(st.sets(st.sampled_from(texts), min_size=1), min_size=1, max_size=5))
    flows = {f"f{at}": found for at, found in enumerate([*sets, texts[-1:]])}
    flows |= {f"g{text}": [text] for text in texts if not any(text in found for found in sets)}
    owners: dict[str, set[str]] = {}
    for text in texts:
        for name in draw(st.sets(st.sampled_from("pqrst"), min_size=1)):
            owners.setdefault(name, set()).add(text)
    table = FlowFilters.of(schema, flows, owners)
    number = st.integers(0, len(texts) - 1)
    return table, draw(st.frozensets(number, min_size=1))


@given(routed())
def test_a_set_without_a_flow_goes_to_the_smallest_that_covers_it_or_to_several(
    given: tuple[FlowFilters, frozenset[int]],
) -> None:
    table, wanted = given
    receivers = {
        flow: {name for name, owned in table.owners.items() if owned & filters}
        for flow, filters in table.flows.items()
    }
    kind, flows = ContentRoutes(table).find(wanted)
    assert wanted <= frozenset().union(*(table.flows[flow] for flow in flows))
    covering = [flow for flow, filters in table.flows.items() if wanted <= filters]
    if kind is RouteKind.EXACT:
        assert [table.flows[flow] for flow in flows] == [wanted]
    elif kind is RouteKind.COVERED:
        assert wanted not in table.flows.values()
        assert len(receivers[flows[0]]) == min(len(receivers[flow]) for flow in covering)
    else:
        assert not covering
        assert all(wanted & table.flows[flow] for flow in flows)
        apart = any(
            wanted <= frozenset().union(*(table.flows[flow] for flow in some))
            and sum(len(receivers[f]) for f in some)
            == len(set().union(*(receivers[f] for f in some)))
            for size in range(1, len(table.flows) + 1)
            for some in combinations(table.flows, size)
        )
        doubled = sum(len(receivers[f]) for f in flows) > len(
            set().union(*(receivers[f] for f in flows))
        )
        assert not (apart and doubled)


def test_an_event_may_match_filters_of_a_thousand_flows() -> None:
    schema = Schema((Attribute("a", AttributeKind.INTEGER),))
    texts = [f"a > {at}" for at in range(1_500)]
    flows = {f"f{text}": [text] for text in texts}
    table = FlowFilters.of(schema, flows, {f"r{text}": [text] for text in texts})
    kind, found = ContentRoutes(table).find(frozenset(range(len(texts))))
    assert kind is RouteKind.SEVERAL
    assert sorted(found) == sorted(flows)


STOCKS = Schema(
    (
        Attribute("symbol", AttributeKind.TEXT),
        Attribute("price", AttributeKind.FLOAT),
        Attribute("volume", AttributeKind.INTEGER),
        Attribute("amount", AttributeKind.DECIMAL, scale=2),
        Attribute("ts", AttributeKind.TIMESTAMP),
    )
)
IBM, DEAR, BOTH = "symbol = 'IBM'", "price > 120", "symbol = 'IBM' AND price > 120"


def stock_table() -> FlowFilters:
    flows = {"c-ibm": [IBM], "c-dear": [DEAR], "c-both": [IBM, DEAR, BOTH]}
    return FlowFilters.of(STOCKS, flows, {"ann": [BOTH], "bob": [IBM], "cy": [DEAR]})


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_events_come_from_any_kind_of_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"events.{suffix}"
    rows: list[dict[str, object]] = [
        {"symbol": "IBM", "price": 130.5, "volume": 1, "ts": "2026-01-05T10:00:00.5Z"},
        {"symbol": "GE", "price": 30.0, "volume": 2, "ts": "2026-01-05T10:00:01Z"},
        {"symbol": "IBM", "price": None, "volume": None, "ts": "2026-01-05T10:00:02Z"},
    ]
    if suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == "csv":
        lines = [",".join("" if v is None else str(v) for v in row.values()) for row in rows]
        path.write_text("\n".join(["symbol,price,volume,ts", *lines]) + "\n")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    sorter = EventSorter(stock_table())
    (found,) = [sorter.sort(some, refuse, path=str(path)) for some in read_events(path)]
    assert [record.flow for record in found] == ["c-both", "c-ibm"]
    assert found[1].ts is not None
    assert found[0].ts is not None
    assert found[1].ts - found[0].ts == 1.5
    assert (sorter.counts.unwanted, sorter.counts.unforeseen) == (1, 0)
    got = EventFilter(stock_table(), [parse_filter(BOTH, STOCKS)], ["c-both"])
    event = got.find("c-both", 7, found[0].payload)
    assert event is not None
    assert json.loads(event.payload)["symbol"] == "IBM"
    assert event.number == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"symbol": 7, "price": 1}', "attribute 'symbol' is 7, not text"),
        (b'{"symbol": "IBM", "price": "dear"}', "attribute 'price' is 'dear', not a number"),
        (b'{"symbol": "IBM", "volume": 1.5}', "attribute 'volume' is 1.5, not a whole number"),
        (b'{"symbol": "IBM", "volume": true}', "attribute 'volume' is True, not a whole number"),
        (
            b'{"symbol": "IBM", "amount": 0.125}',
            "attribute 'amount' is 0.125, not a decimal number",
        ),
        (b'{"symbol": "IBM", "ts": "noon"}', "not an event"),
        (b'{"symbol": "\\ud800", "price": 1}', "not an event"),
        (b'{"weather": "fine"}', "has none of the attributes that filters test: symbol, price"),
        (b'{"symbol": "IBM", "Symbol": "GE"}', "names differ only in case"),
        (b"[1]", "not an event"),
        (b"{", "not an event"),
        (b"\xff", "not an event"),
    ],
)
def test_an_event_that_cannot_be_used_is_named_by_its_row_and_counted(
    tmp_path: Path, line: bytes, said: str
) -> None:
    path = tmp_path / "events.jsonl"
    good = b'{"symbol": "IBM", "price": 1, "amount": 3.25}\n'
    path.write_bytes(good + line + b"\n" + good)
    sorter = EventSorter(stock_table())
    faults: list[InputError] = []
    (found,) = [sorter.sort(some, faults.append, path=str(path)) for some in read_events(path)]
    assert len(found) == 2
    assert sorter.counts.bad == 1
    assert sorter.counts.events == 3
    (fault,) = faults
    assert said in str(fault)
    assert fault.row == 2
    assert fault.remedy
    assert str(fault).startswith(str(path))


@pytest.mark.parametrize("text", ["symbol IS NULL", "TRUE"])
def test_an_event_without_attributes_goes_to_filters_that_match_it(text: str) -> None:
    table = FlowFilters.of(STOCKS, {"c": [text], "d": [IBM]}, {"ann": [text], "bob": [IBM]})
    found = EventSorter(table).sort([Event(1, {}, b"")], refuse)
    assert [message.flow for message in found] == ["c"]


def test_decimals_of_any_number_of_digits_are_matched_together() -> None:
    table = FlowFilters.of(STOCKS, {"c": ["amount > 0"]}, {"ann": ["amount > 0"]})
    amounts = ["9" * 74, "0.01" + "0" * 40, "1E+30", 3, 0.25]
    values = [Decimal(each) if isinstance(each, str) else each for each in amounts]
    events = [Event(at, {"amount": each}, b"") for at, each in enumerate(values, 1)]
    assert len(EventSorter(table).sort(events, refuse)) == 5


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_a_file_that_cannot_be_read_is_an_error_that_says_why(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"events.{suffix}"
    with pytest.raises(InputError, match="No such file"):
        list(read_events(path))
    if suffix == "parquet":
        late = pa.array([2**62], pa.timestamp("us"))
        pq.write_table(pa.table({"ts": late}), path)
    else:
        path.write_bytes(b'a\n"b"c\n1,2\n' if suffix == "csv" else b"")
    if suffix != "jsonl":
        with pytest.raises(InputError, match="cannot be read as a table of events"):
            list(read_events(path))


def test_a_message_of_another_table_is_no_event(tmp_path: Path) -> None:
    table = stock_table()
    other = FlowFilters.of(STOCKS, {"c-both": [BOTH]}, {"ann": [BOTH]})
    event = Event(1, {"symbol": "IBM", "price": 130}, b"x")
    (message,) = EventSorter(other).sort([event], refuse)
    found = EventFilter(table, table.filters, table.flows)
    for payload in (message.payload, b"", b"{}", b"\xff", b'{"t":1}', message.payload[:-1]):
        assert found.find("c-both", 1, payload) is None
    assert found.foreign == 6


def test_a_payload_may_be_any_bytes_and_a_decimal_beyond_64_bits() -> None:
    table = FlowFilters.of(STOCKS, {"c": ["amount > 0"]}, {"ann": ["amount > 0"]})
    event = Event(1, {"amount": Decimal("9" * 40)}, b"\xff\0")
    (message,) = EventSorter(table).sort([event], refuse)
    found = EventFilter(table, table.filters, ["c"]).find("c", 1, message.payload)
    assert found is not None
    assert found.payload == b"\xff\0"


def test_a_folder_of_filters_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = stock_table()
    save_content(table, tmp_path)
    again = read_flow_filters(tmp_path / "content")
    assert again.digest == table.digest
    assert (again.flows, again.own, again.owners) == (table.flows, table.own, table.owners)
    check_content(again, plan_content(table))


def test_a_table_that_does_not_belong_to_the_plan_is_refused() -> None:
    table = stock_table()
    for other, said in (
        (FlowFilters.of(STOCKS, {"c-ibm": [IBM]}, {"ann": [IBM]}), "flow 'c-both'"),
        (
            FlowFilters.of(
                STOCKS, {flow: [IBM] for flow in table.flows}, {"ann": [IBM], "zed": [IBM]}
            ),
            "receiver 'bob'",
        ),
    ):
        with pytest.raises(InputError, match=f"does not belong to the plan: {said} is not in both"):
            check_content(other, plan_content(table), path="content")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("content.json", b"{", "does not parse"),
        ("content.json", b'{"format": 2}', "has format 2, not 1"),
        ("content.json", b'{"format": 1}', "does not list the attributes"),
        ("content.json", b'{"format": 1, "attributes": []}', "the filter cannot be used"),
        ("content.json", None, "has no content.json"),
        ("flows.parquet", b"", "flows.parquet"),
    ],
)
def test_a_folder_of_filters_that_cannot_be_read_is_an_error_that_says_why(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    save_content(stock_table(), tmp_path)
    if content is None:
        (tmp_path / "content" / name).unlink()
    else:
        (tmp_path / "content" / name).write_bytes(content)
    with pytest.raises(InputError, match=said) as raised:
        read_flow_filters(tmp_path / "content")
    assert raised.value.remedy
