"""The parts of the live half by themselves: addresses, keys, records, datagrams, fits."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import nnls

from distributary.cost import FilteringPrices, PacketPrices
from distributary.delivery import Messages, ReceiverMachine, ReceiverParams
from distributary.delivery.udp import (
    KeyFileError,
    Loss,
    NetworkOptions,
    Receiver,
    read_key,
    wanted_flows,
)
from distributary.delivery.udp.calibration import (
    Calibration,
    CalibrationParams,
    FittedLine,
    FittedPrice,
    Measurement,
    fit_line,
    fit_price,
    make_two_session_plan,
    pick_medians,
)
from distributary.delivery.udp.datagrams import (
    Batch,
    PlainReader,
    PlainWriter,
    Reader,
    Writer,
    has_mmsg,
    keep_datagrams,
    make_reader,
    make_writer,
    prepare_for_reader,
    slot_size,
)
from distributary.delivery.udp.endpoints import format_address, parse_address
from distributary.delivery.udp.plan_watch import PlanWatch, stamp_of
from distributary.delivery.udp.receiver import SocketRead
from distributary.delivery.udp.records import Record, feed_chunks, read_lines, read_records
from distributary.delivery.udp.trains import Train, build_directory
from distributary.errors import DistributaryError, InputError
from distributary.files import write_plan
from distributary.files.calibration import read_prices
from distributary.model import Interest, Packing, Plan
from tests.delivery.machines import simple_plan

# --- addresses -----------------------------------------------------------------------------------


@given(st.integers(0, 65_535), st.sampled_from(["10.1.2.3", "127.0.0.1"]), st.integers(0, 9))
def test_addresses_come_back_as_they_were_told(port: int, host: str, scope: int) -> None:
    assert parse_address(format_address((host, port))) == (host, port)
    assert parse_address(format_address(("fe80::1", port, 0, scope))) == ("fe80::1", port, 0, scope)


@given(st.text())
def test_a_name_is_no_address(name: str) -> None:
    assert parse_address(name) is None


def test_options_out_of_range_are_refused() -> None:
    for wrong in ({"ttl": 256}, {"own_port": -1}, {"batch": 0}):
        with pytest.raises(ValueError, match=r"number|at least 1"):
            NetworkOptions(**wrong)  # type: ignore[arg-type]


# --- keys ----------------------------------------------------------------------------------------


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_bytes(b"k" * 32)
    return path


def test_a_key_is_all_bytes_of_its_file(key: Path) -> None:
    assert read_key(key) == b"k" * 32


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o601, 0o777])
def test_a_key_that_others_can_get_at_is_refused(key: Path, mode: int) -> None:
    key.chmod(mode)
    with pytest.raises(KeyFileError, match=f"mode {mode:03o}.*chmod 600"):
        read_key(key)


def test_a_key_of_another_user_is_refused(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: key.stat().st_uid + 1)
    with pytest.raises(KeyFileError, match="another user"):
        read_key(key)


@pytest.mark.parametrize("size", [0, 15, 65, 1_000])
def test_a_key_is_neither_short_nor_long(key: Path, size: int) -> None:
    key.write_bytes(b"k" * size)
    with pytest.raises(KeyFileError, match="16 to 64 bytes"):
        read_key(key)


def test_a_key_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="No such file"):
        read_key(tmp_path / "nothing")
    with pytest.raises(KeyFileError, match="directory"):
        read_key(tmp_path)


# --- datagrams -----------------------------------------------------------------------------------

READERS = [True, pytest.param(False, marks=pytest.mark.skipif(not has_mmsg(), reason="Linux"))]


@contextmanager
def two_sockets(family: socket.AddressFamily) -> Iterator[tuple[socket.socket, socket.socket]]:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with (
        socket.socket(family, socket.SOCK_DGRAM) as one,
        socket.socket(family, socket.SOCK_DGRAM) as other,
    ):
        for each in (one, other):
            each.bind((host, 0))
            each.setblocking(False)
        yield one, other


def packets_of(batch: Batch) -> list[bytes]:
    places = zip(batch.offsets.tolist(), batch.lengths.tolist(), strict=True)
    return [batch.buffer[offset : offset + length].tobytes() for offset, length in places]


def read_all(reader: Reader, source: socket.socket) -> tuple[list[bytes], list[object], int]:
    packets, sources, truncated = [], [], 0
    while (batch := reader.read(source)) is not None:
        packets += packets_of(batch)
        sources += [batch.source_of(at) for at in range(len(batch.offsets))]
        truncated += batch.truncated
    return packets, sources, truncated


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("plain_reader", READERS)
@pytest.mark.parametrize("plain_writer", READERS)
def test_what_is_written_is_read_by_either_way(
    family: socket.AddressFamily, plain_reader: bool, plain_writer: bool
) -> None:
    rng = np.random.default_rng(7)
    with two_sockets(family) as (one, other):
        writer: Writer = make_writer(5, plain=plain_writer)
        reader: Reader = make_reader(4, 300, plain=plain_reader)
        for n in (1, 3, 4, 5, 23):
            packets = [rng.bytes(int(size)) for size in rng.integers(0, 400, n)]
            assert writer.write(one, [(other.getsockname(), packet) for packet in packets]) == 0
            found, sources, truncated = read_all(reader, other)
            assert found == [packet for packet in packets if len(packet) <= 300]
            assert truncated == len(packets) - len(found)
            assert sources == [one.getsockname()] * len(found)
        assert reader.read(other) is None


@pytest.mark.skipif(not has_mmsg(), reason="Linux")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def test_datagrams_that_travel_together_come_out_as_they_were(
    family: socket.AddressFamily,
) -> None:
    rng = np.random.default_rng(8)
    with two_sockets(family) as (one, other):
        prepare_for_reader(other)
        writer, reader = make_writer(6), make_reader(4, 2_000)
        for _ in range(50):
            sizes = rng.choice(
                [0, 1, 70, 900, 1_400, 2_000, 2_001], 40, p=[0.05, 0.05, 0.1, 0.2, 0.4, 0.1, 0.1]
            )
            packets = [rng.bytes(int(size)) for size in np.repeat(sizes, rng.integers(1, 4, 40))]
            to = other.getsockname()
            for begin in range(0, len(packets), 20):  # no more than the buffer holds
                some = packets[begin : begin + 20]
                assert writer.write(one, [(to, packet) for packet in some]) == 0
                found, sources, truncated = read_all(reader, other)
                assert found == [packet for packet in some if len(packet) <= 2_000]
                assert truncated == len(some) - len(found)
                assert sources == [one.getsockname()] * len(found)


@pytest.mark.parametrize("plain", READERS)
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def test_stamps_lie_between_the_write_and_the_read(
    family: socket.AddressFamily, plain: bool
) -> None:
    with two_sockets(family) as (one, other):
        prepare_for_reader(other, plain=plain)
        writer, reader = make_writer(6, plain=plain), make_reader(8, 2_000, plain=plain)
        for n in (1, 2, 7):
            begin = time.time_ns()
            writer.write(one, [(other.getsockname(), bytes(900))] * n)
            written = time.time_ns()
            batch = reader.read(other)
            assert batch is not None
            assert batch.stamps is not None
            assert len(batch.offsets) == len(batch.stamps) == n
            assert batch.stamped == (0 if plain else n)
            assert (batch.stamps >= (written if plain else begin)).all()
            assert (batch.stamps <= time.time_ns()).all()
            some = keep_datagrams(batch, np.array([n - 1]))
            assert some.stamps is not None
            assert some.stamps.tolist() == batch.stamps.tolist()[n - 1 :]


@pytest.mark.parametrize("plain", READERS)
def test_one_write_goes_to_several_addresses(plain: bool) -> None:
    with two_sockets(socket.AF_INET) as (one, other):
        writer = make_writer(8, plain=plain)
        to = [one.getsockname(), other.getsockname()]
        writer.write(one, [(to[at % 2], bytes([at])) for at in range(7)])
        for at, source in enumerate((one, other)):
            found, _, _ = read_all(PlainReader(8, 10), source)
            assert found == [bytes([number]) for number in range(7) if number % 2 == at]


@pytest.mark.parametrize("plain", READERS)
def test_a_packet_that_cannot_be_sent_at_all_is_an_error(plain: bool) -> None:
    with two_sockets(socket.AF_INET) as (one, other):
        writer = make_writer(4, plain=plain)
        with pytest.raises(OSError, match="long"):
            writer.write(one, [(other.getsockname(), bytes(70_000))] * 2)


def test_the_default_is_the_faster_way() -> None:
    assert isinstance(make_reader(1, 1), PlainReader) is not has_mmsg()
    assert isinstance(make_writer(1), PlainWriter) is not has_mmsg()


@given(st.integers(1, 70_000))
def test_slots_hold_a_byte_more_and_an_odd_number_of_cache_lines(largest: int) -> None:
    assert slot_size(largest) > largest
    assert slot_size(largest) % 128 == 64


@given(st.floats(0, 0.99), st.integers(0, 100), st.lists(st.integers(0, 50), max_size=20))
def test_the_same_seed_loses_the_same_packets(share: float, seed: int, sizes: list[int]) -> None:
    kept = []
    for _ in range(2):
        loss, left = Loss(share, seed), []
        for n in sizes:
            batch = Batch(
                np.zeros(n, np.uint8),
                np.arange(n),
                np.ones(n, np.int64),
                lambda at: ("", at),
                0,
                more=False,
                size=n,
            )
            thin = loss.thin(batch)
            assert [thin.source_of(at)[1] for at in range(len(thin.offsets))] == (
                thin.offsets.tolist()
            )
            left.append(thin.offsets.tolist())
        assert loss.lost == sum(sizes) - sum(map(len, left))
        kept.append(left)
    assert kept[0] == kept[1]


# --- records -------------------------------------------------------------------------------------


def flattened(chunks: Iterator[list[Record]]) -> list[Record]:
    return [record for chunk in chunks for record in chunk]


def test_lines_are_flow_tab_payload_or_json() -> None:
    text = b'a\tone\n\n{"flow": "b", "payload": "two", "ts": 3}\r\nc\ttab\tinside\nd\t'
    assert flattened(read_lines(io.BytesIO(text))) == [  # type: ignore[arg-type]
        Record("a", b"one"),
        Record("b", b"two", 3.0),
        Record("c", b"tab\tinside"),
        Record("d", b""),
    ]


@given(st.lists(st.tuples(st.text(), st.binary(), st.none() | st.floats(0, 1e9))))
def test_json_lines_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, bytes, float | None]]
) -> None:
    import base64

    path = tmp_path_factory.mktemp("records") / "a.jsonl"
    with path.open("w") as file:
        for flow, payload, ts in rows:
            told = {"flow": flow, "payload_base64": base64.b64encode(payload).decode(), "ts": ts}
            file.write(json.dumps(told) + "\n")
    assert flattened(read_records(path)) == [Record(*row) for row in rows]


def test_parquet_has_text_or_binary_and_times(tmp_path: Path) -> None:
    ts = pa.array([1_000_000, 2_500_000], pa.timestamp("us", "UTC"))
    for payload in (pa.array(["x", "y"]), pa.array([b"x", b"y"], pa.binary())):
        pq.write_table(
            pa.table({"flow": ["a", "b"], "payload": payload, "ts": ts}), tmp_path / "r.parquet"
        )
        found = flattened(read_records(tmp_path / "r.parquet"))
        assert found == [Record("a", b"x", 1.0), Record("b", b"y", 2.5)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"no tab here\n", "row 1: a line is a flow"),
        ("a.txt", b"a\tb\n\xff\tc\n", "row 2: a line is a flow"),
        ("a.jsonl", b'{"flow": 3}\n', "row 1: is not a message"),
        ("a.jsonl", b"a\tb\n", "row 1: is not a message"),
        ("a.jsonl", b'{"flow": "a", "payload": "", "ts": "soon"}\n', "row 1: is not a message"),
        ("a.parquet", b"PAR1", "is not a Parquet file"),
    ],
)
def test_what_is_no_message_is_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said):
        flattened(read_records(tmp_path / name))


@pytest.mark.parametrize(
    "line",
    [
        b'{"flow": "f0"}',
        b'{"flow": "f0", "payload": null}',
        b'{"flow": "f0", "payload_base64": null}',
        b'{"flow": "f0", "data": "x"}',
        b'{"flow": "f0", "payload": "x", "payload_base64": "eA=="}',
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_a_line_without_one_payload_is_refused_and_named(
    tmp_path: Path, name: str, line: bytes
) -> None:
    good = b'{"flow": "f0", "payload": ""}\n'
    (tmp_path / name).write_bytes(good + line + b"\n" + good)
    with pytest.raises(InputError, match=r"row 2: is not a message .*payload"):
        flattened(read_records(tmp_path / name))


def test_a_fault_in_the_input_reaches_who_reads_it(tmp_path: Path) -> None:
    async def read() -> None:
        async for _ in feed_chunks(read_records(tmp_path / "nothing")):
            pass

    with pytest.raises(InputError, match="No such file"):
        asyncio.run(read())


# --- plans ---------------------------------------------------------------------------------------


def test_a_plan_brings_flows_of_sessions_and_by_unicast() -> None:
    plan = simple_plan([0, 1, -1], [0, 1], {"s": [2]})
    assert wanted_flows(plan, "r") == ("f0", "f1")
    assert wanted_flows(plan, "s") == ("f2",)
    assert wanted_flows(plan, "nobody") == ()


def test_interest_can_be_a_table_of_all_receivers() -> None:
    plan = simple_plan([0, 1, 0], [0, 1])
    interest = Interest.from_pairs([("r", "f2"), ("r", "f0"), ("s", "f1")])
    assert Receiver(plan, interest, name="r").flows == ("f0", "f2")
    assert Receiver(plan, ["f1"], name="r").flows == ("f1",)
    assert Receiver(plan, interest, name="x").flows == ()


def test_a_watch_tells_of_new_plans_and_keeps_the_old_one_when_they_are_broken(
    tmp_path: Path,
) -> None:
    folder, faults, found = tmp_path / "plan", list[DistributaryError](), list[Plan]()
    write_plan(simple_plan([0], [0]), {}, folder)

    async def watch() -> None:
        watched = PlanWatch(folder, 0.01, faults.append)
        plans = watched.plans()
        (folder / "plan.json").write_text("{ this is not JSON, and of another length")
        waiting = asyncio.ensure_future(anext(plans))
        while not faults:
            await asyncio.sleep(0.01)
        write_plan(simple_plan([0, 0], [0]), {}, folder)
        found.append(await waiting)
        await plans.aclose()  # type: ignore[attr-defined]

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await watch()

    asyncio.run(bounded())
    assert len(faults) == 1
    assert found[0].flows == ("f0", "f1")


def test_a_watch_prepares_a_plan_again_until_it_can_be_used(tmp_path: Path) -> None:
    folder, faults, tries = tmp_path / "plan", list[DistributaryError](), list[Plan]()
    write_plan(simple_plan([0], [0]), {}, folder)

    def prepare(plan: Plan) -> None:
        tries.append(plan)
        if len(tries) < 4:
            raise InputError("is not there yet", path="content")

    async def watch() -> Plan:
        plans = PlanWatch(folder, 0.01, faults.append, prepare).plans()
        write_plan(simple_plan([0, 0], [0]), {}, folder)
        async for plan in plans:
            return plan
        raise AssertionError

    assert asyncio.run(watch()).flows == ("f0", "f1")
    assert [plan.flows for plan in tries] == [("f0", "f1")] * 4
    assert [str(fault) for fault in faults] == ["content: is not there yet"]  # once


def test_a_watch_sees_that_a_link_on_the_way_was_switched(tmp_path: Path) -> None:
    for name, plan in (("v1", simple_plan([0], [0])), ("v2", simple_plan([0, 0], [0]))):
        (tmp_path / name).mkdir()
        write_plan(plan, {}, tmp_path / name / "plan")
    (tmp_path / "now").symlink_to("v1")
    (tmp_path / "next").symlink_to("v2")

    async def watch() -> Plan:
        plans = PlanWatch(tmp_path / "now" / "plan", 0.01, lambda error: None).plans()
        (tmp_path / "next").replace(tmp_path / "now")
        async with asyncio.timeout(60):
            return await anext(plans)

    assert asyncio.run(watch()).flows == ("f0", "f1")


def test_a_watch_follows_a_pointer_once_the_version_is_complete(tmp_path: Path) -> None:
    faults = list[DistributaryError]()

    def add_version(name: str, plan: Plan) -> None:
        document = {"format": 1, "version": name, "files": 4, "written": "", "previous": None}
        (tmp_path / "CURRENT").write_text(json.dumps(document))  # before its version, as in a copy
        assert stamp_of(tmp_path / "plan") is None
        write_plan(plan, {}, tmp_path / "versions" / name / "plan")

    async def watch() -> Plan:
        plans = PlanWatch(tmp_path / "plan", 0.01, faults.append).plans()
        waiting = asyncio.ensure_future(anext(plans))
        (tmp_path / "CURRENT").write_text(
            (tmp_path / "CURRENT").read_text().replace("00000001", "00000002")
        )
        await asyncio.sleep(0.05)
        assert not waiting.done()
        add_version("20260101T000000Z-00000002", simple_plan([0, 0], [0]))
        async with asyncio.timeout(60):
            return await waiting

    add_version("20260101T000000Z-00000001", simple_plan([0], [0]))
    assert asyncio.run(watch()).flows == ("f0", "f1")
    assert not faults


# --- trains --------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(8, 40), st.lists(st.integers(1, 30), max_size=5))
def test_a_receiver_takes_in_every_message_of_a_train(h: int, size: int, turns: list[int]) -> None:
    plan = make_two_session_plan(3)
    receiver = ReceiverMachine(
        "r", plan.flows[:3], rng=np.random.default_rng(0), params=ReceiverParams(history=True)
    )
    receiver.start(0.0)
    for packet in build_directory(plan, 7, 1):
        receiver.on_packet(packet, 0.0)
    train = Train(0, range(3), 7, messages_per_packet=h, message_bytes=size)
    other = Train(1, range(3, 6), 7, messages_per_packet=h, message_bytes=size)
    taken: list[tuple[str, int]] = []
    for n in turns:
        for row in (*train.take(n), *other.take(n)):
            for action in receiver.on_packet(row.tobytes(), 0.0):
                if isinstance(action, Messages):
                    taken += [(message.flow, message.sequence) for message in action]
    total = h * sum(turns)
    assert taken == [(plan.flows[at % 3], at // 3 + 1) for at in range(total)]
    assert receiver.statistics.unwanted_packets == sum(turns)
    assert receiver.statistics.malformed == 0


# --- calibration ---------------------------------------------------------------------------------


@given(st.floats(1e-9, 1e-5), st.floats(0, 1e-5), st.floats(0, 0.05), st.floats(1e3, 1e6))
def test_the_fit_finds_the_prices_that_points_were_made_of(
    alpha: float, beta: float, idle: float, rate: float
) -> None:
    mixes = [(1, 0), (0, 1), (0.5, 0.5), (0.5, 0), (0.25, 0.25)]
    points = [
        Measurement(8, a * rate, b * rate, (a + b) * rate * alpha + a * rate * beta + idle)
        for a, b in mixes
    ]
    found = fit_price(points, 8)
    close = 1e-6 * (alpha + beta + idle / rate)
    assert found.alpha == pytest.approx(alpha, rel=1e-6, abs=close)
    assert found.beta == pytest.approx(beta, rel=1e-6, abs=close)
    assert found.r2 == pytest.approx(1)


@given(st.floats(0, 1), st.floats(0.01, 10))
def test_the_line_finds_what_prices_were_made_of(constant: float, per_packet: float) -> None:
    made = FittedLine(constant, per_packet, 1.0)
    factors = [1, 2, 8, 40]
    found = fit_line(factors, [made.at(h) for h in factors])
    assert found.constant == pytest.approx(constant, abs=1e-9)
    assert found.per_packet == pytest.approx(per_packet, rel=1e-9)


RATES = st.integers(0, 100).map(float)


@given(
    st.lists(st.tuples(RATES, RATES, st.integers(0, 100)), min_size=3, max_size=8).filter(
        lambda rows: any(wanted or other for wanted, other, _ in rows)
    )
)
@example([(78, 56, 60), (36, 83, 56), (9, 100, 53)])  # no column can be dropped for good
def test_the_fit_is_as_close_as_an_independent_solver_gets(
    rows: list[tuple[float, float, int]],
) -> None:
    found = fit_price([Measurement(1, *row) for row in rows], 1)
    assert min(found.alpha, found.beta, found.idle) >= 0
    wanted, other, cpu = np.array(rows, np.float64).T
    columns = np.column_stack((wanted + other, wanted, np.ones(len(rows))))
    _, least = nnls(columns, cpu)
    error = np.linalg.norm(columns @ [found.alpha, found.beta, found.idle] - cpu)
    assert error <= least * (1 + 1e-6) + 1e-6


def test_of_several_rounds_the_median_of_each_mix_counts() -> None:
    rounds = [(0.1, 0.5), (0.9, 0.4), (0.2, 0.6)]
    points = [Measurement(1, mix, 0.0, cpu) for each in rounds for mix, cpu in enumerate(each)]
    assert [(p.wanted_rate, p.cpu) for p in pick_medians(points, 2)] == [(0, 0.2), (1, 0.5)]
    assert pick_medians(points[:2], 2) == points[:2]


def test_prices_below_nothing_are_taken_as_nothing() -> None:
    found = fit_price(
        [Measurement(1, 1.0, 0.0, 1.0), Measurement(1, 0.0, 1.0, 3.0), Measurement(1, 1, 1, 3.9)], 1
    )
    assert found.beta == 0
    assert found.alpha > 0


@pytest.mark.parametrize(
    ("price", "alpha", "beta", "doubtful"),
    [(0.9, 0.9, 0.1, False), (0.7, 0.9, 0.9, True), (0.9, 0.7, 0.9, True)],
)
def test_prices_that_do_not_fit_are_doubted(
    price: float, alpha: float, beta: float, doubtful: bool
) -> None:
    prices = (FittedPrice(1, 2.0, 1.0, 0.0, 0.99), FittedPrice(8, 1.0, 1.0, 0.0, price))
    lines = FittedLine(1.0, 1.0, alpha), FittedLine(1.0, 0.0, beta)
    assert Calibration(CalibrationParams(), (), prices, *lines).doubtful == doubtful


def test_a_calibration_file_gives_prices_of_messages_and_packets(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    told = {"format": 1, "alpha0": 1.0, "alpha1": 8.0, "beta0": 2.0, "beta1": 4.0}
    path.write_text(json.dumps(told))
    assert read_prices(path) == PacketPrices(1.0, 8.0, 2.0, 4.0)
    assert read_prices(path).linear == FilteringPrices(2.0, 2.5)
    by_two = read_prices(path, Packing(2, 0.01))
    assert by_two == PacketPrices(1.0, 8.0, 2.0, 4.0, messages_per_packet=2, delay_s=0.01)


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"format": 2}', '{"format": 1, "alpha0": "x"}', '{"format": 1, "alpha0": -1}'],
)
def test_what_is_no_calibration_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(content)
    with pytest.raises(InputError, match="distributary calibrate"):
        read_prices(path)


# --- looking -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gather", "packets", "waits"),
    [
        (None, 1, False),  # a lone packet is handed over at once, and so is the one after it
        (None, 15, False),
        (None, 16, True),
        (None, 1_000, False),  # a quarter of the room came at once: there may soon be none left
        (0.0, 100, False),
        (0.01, 0, False),
        (0.01, 1, True),
        (0.01, 1_000, False),
    ],
)
def test_packets_are_let_gather_under_load_while_there_is_room(
    gather: float | None, packets: int, waits: bool
) -> None:
    receiver = Receiver(make_two_session_plan(), name="r", gather=gather)
    receiver._room = 4_000_000
    assert receiver._should_gather(SocketRead(packets, 1_000 * packets)) == waits
