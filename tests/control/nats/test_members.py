"""Members of a control plane on a real server, which is cut, restarted and emptied."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import nats.errors
import pytest
from nats.js.errors import NoStreamResponseError

from distributary.control.errors import (
    ControlAwayError,
    ControlLostError,
    CountsLostError,
    MemberNameTakenError,
    PlanGoneError,
    RecordTooLargeError,
    ServerAwayError,
    ServerRefusedError,
)
from distributary.control.nats.kept_record import KeptRecord
from distributary.control.nats.members import Control
from distributary.delivery.udp.control import PlanVersion
from distributary.errors import DistributaryError
from distributary.machines.nats import NatsOptions, run_embedded_server
from distributary.machines.nats.server_file import read_server_file
from distributary.model import Plan
from tests.control.nats.fake_service import (
    FakeService,
    add_up,
    publisher_statistics,
    receiver_statistics,
    serving,
)
from tests.delivery.machines import simple_plan

T = TypeVar("T")
ODD = "a.b * > ü\n/=%"
PATIENCE = 120.0  # seconds after which a test fails: never how long anything should take


def run(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE):
            return await work

    return asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


async def flows_become(service: FakeService, name: str, flows: tuple[str, ...] | None) -> None:
    while True:
        found = await service.read_record("receiver", name)
        if (None if found is None else found.flows) == flows:
            return
        await asyncio.sleep(0.02)


def plan_of(n_flows: int) -> Plan:
    return simple_plan([0] * n_flows, [0])


def test_a_publisher_hears_of_the_version_in_force_and_of_those_that_follow(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server, serving(server.options) as service:
            control = Control(tmp_path)
            async with control.seat_publisher("early", None, pytest.fail) as seat:
                assert seat.first is None
                async with aclosing(_generator(seat.versions())) as versions:
                    await service.hint()
                    for n_flows in (1, 2, 3):
                        await service.decide(plan_of(n_flows))
                        found = await anext(versions)
                        assert (found.version, len(found.plan.flows)) == (n_flows, n_flows)
            async with control.seat_publisher("late", ("f0",), pytest.fail) as seat:
                assert seat.first is not None
                assert seat.first.version == 3
                assert seat.network.groups.base == "239.192.99.0"
                assert seat.network.ttl == 0
                record = await service.read_record("publisher", "late")
                assert record is not None
                assert record.flows == ("f0",)
            assert await service.read_record("publisher", "late") is None

    run(work())


async def _generator(versions: AsyncIterator[PlanVersion]) -> Any:
    async for found in versions:
        yield found


def test_a_version_that_cannot_be_fetched_is_told_once_and_the_next_one_counts(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        faults: list[DistributaryError] = []
        async with run_embedded_server(tmp_path) as server, serving(server.options) as service:
            await service.decide(plan_of(1), stored=False)
            async with Control(tmp_path).seat_publisher("p", None, faults.append) as seat:
                assert seat.first is None
                await service.decide(plan_of(2))
                assert (await anext(seat.versions())).version == 2
        assert [type(fault) for fault in faults] == [PlanGoneError]

    run(work())


def test_what_a_receiver_wants_is_written_down_until_it_ends(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server, serving(server.options) as service:
            async with Control(tmp_path).seat_receiver(ODD, ("b", "a"), pytest.fail) as seat:
                await flows_become(service, ODD, ("a", "b"))
                seat.subscribe([ODD, "a"])
                await flows_become(service, ODD, ("a", ODD, "b"))
                seat.unsubscribe(["a", "never wanted"])
                await flows_become(service, ODD, (ODD, "b"))
                for number in range(500):
                    seat.want([f"f{number}"])
                await flows_become(service, ODD, ("f499",))
                await service.delete_record("receiver", ODD)
                await flows_become(service, ODD, ("f499",))
            assert await service.read_record("receiver", ODD) is None

    run(work())


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server, serving(server.options) as service:
            control = Control(tmp_path)
            async with control.seat_receiver("r", (), pytest.fail) as holder:
                with pytest.raises(MemberNameTakenError, match=r"'r' .*process \d+ on") as caught:
                    async with control.seat_receiver("r", (), pytest.fail):
                        pass
                assert "\n" not in str(caught.value)
                async with control.seat_publisher("r", None, pytest.fail):
                    pass  # publishers have names of their own
                holder.report(receiver_statistics(), ())
                await until(lambda: holder.statistics.reports == 1)
                (report,) = await service.read_receiver_reports("r")
                assert (report.claims, report.claimed_by) == (1, holder.record.where)
            async with control.seat_receiver("r", (), pytest.fail):
                pass  # its holder has left
            seats = [control.seat_receiver("x", (), pytest.fail) for _ in range(4)]
            found = await asyncio.gather(
                *(seat.__aenter__() for seat in seats), return_exceptions=True
            )
            refused = [isinstance(each, MemberNameTakenError) for each in found]
            assert sorted(refused) == [False, True, True, True]
            await seats[refused.index(False)].__aexit__(None, None, None)

    run(work())


HOLDER = """
import asyncio, sys
from distributary.control.nats.kept_record import KeptRecord
from distributary.control.nats.members import Control

async def main():
    async with Control(sys.argv[1]).seat_receiver("r", ("of the holder",), print):
        print("holds", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


async def start_holder(folder: Path) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-c", HOLDER, str(folder))
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"holds\n"
    return process


def test_the_name_of_a_member_that_was_killed_is_taken_over_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server, serving(server.options) as service:
            holder = await start_holder(tmp_path)
            await flows_become(service, "r", ("of the holder",))
            with pytest.raises(MemberNameTakenError):
                async with Control(tmp_path).seat_receiver("r", (), pytest.fail):
                    pass
            holder.kill()
            await holder.wait()
            async with Control(tmp_path).seat_receiver("r", ("mine",), pytest.fail):
                await flows_become(service, "r", ("mine",))

    run(work())


def test_a_member_that_was_stopped_for_long_loses_its_name_and_ends(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server, serving(server.options) as service:
            holder = await start_holder(tmp_path)
            os.kill(holder.pid, signal.SIGSTOP)
            try:
                async with Control(tmp_path).seat_receiver("r", ("mine",), pytest.fail):
                    os.kill(holder.pid, signal.SIGCONT)
                    _, said = await holder.communicate()
                    assert b"MemberNameTakenError: the name 'r' is taken" in said
                    await flows_become(service, "r", ("mine",))
            finally:
                if holder.returncode is None:
                    holder.kill()
                    await holder.wait()

    run(work())


def test_a_member_claims_its_name_again_if_the_server_goes_away_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, failures = KeptRecord.claim, [nats.errors.TimeoutError(), NoStreamResponseError()]

    async def fail_first(record: KeptRecord) -> None:
        if failures:
            raise failures.pop()
        await claim(record)

    async def work() -> None:
        async with run_embedded_server(tmp_path) as server, serving(server.options) as service:
            async with Control(tmp_path).seat_receiver("r", ("mine",), pytest.fail):
                await flows_become(service, "r", ("mine",))
            failures.append(nats.errors.TimeoutError())
            with pytest.raises(ControlAwayError, match="within 0 s"):
                async with Control(tmp_path, within=0.0).seat_receiver("r", (), pytest.fail):
                    pass

    monkeypatch.setattr(KeptRecord, "claim", fail_first)
    run(work())


def test_reports_name_each_flow_once_and_add_up(tmp_path: Path) -> None:
    async def work() -> None:
        counted: Counter[str] = Counter()
        async with run_embedded_server(tmp_path) as server, serving(server.options) as service:
            async with Control(tmp_path).seat_publisher("p", None, pytest.fail) as seat:
                for second in range(5):
                    for flow in ("a", ODD, f"f{second}"):
                        counted[flow] += 1
                        seat.count(flow)
                    seat.report(second, publisher_statistics(second))
                    await until(lambda: seat.statistics.kept_messages == 0)
                assert seat.statistics.connected
                assert seat.statistics.reported_at > 0
                assert seat.statistics.reports == 5
                seat.count("last")
                seat.report(6, publisher_statistics())
            counted["last"] = 1
            reports = await service.read_publisher_reports("p")
            assert add_up(reports) == counted
            assert [name for report in reports for name in report.names] == [*counted]
            assert reports[-1].plan_version == 6
            async with Control(tmp_path).seat_receiver("r", (), pytest.fail) as receiver:
                receiver.report(receiver_statistics(7), ("x",))
                await until(lambda: receiver.statistics.reports == 1)
            (report,) = await service.read_receiver_reports("r")
            assert (report.wanted, report.unserved) == (7, ("x",))

    run(work())


def test_nothing_is_lost_while_the_server_is_away(tmp_path: Path) -> None:
    """Killed for seconds while messages are counted and interest changes, again and again."""

    async def work() -> None:
        counted: Counter[str] = Counter()
        faults: list[DistributaryError] = []
        control = Control(tmp_path)
        async with run_embedded_server(tmp_path) as server, serving(server.options) as service:
            first = control.seat_publisher("p", None, faults.append)
            other = control.seat_receiver("r", ("a",), faults.append)
            publisher, receiver = await first.__aenter__(), await other.__aenter__()
            versions = publisher.versions()
            await service.decide(plan_of(1))
            assert (await anext(versions)).version == 1

        async def count() -> None:
            while True:
                for number in range(20):
                    counted[f"f{number}"] += 1
                    publisher.count(f"f{number}")
                publisher.report(1, publisher_statistics(counted.total()))
                await asyncio.sleep(0.05)

        counting = asyncio.create_task(count())
        for away, n_flows in ((5.0, 2), (0.5, 3)):
            await asyncio.sleep(away)
            assert publisher.statistics.kept_messages > 0
            receiver.want([f"wanted {n_flows}"])
            async with run_embedded_server(tmp_path) as server, serving(server.options) as service:
                await service.decide(plan_of(n_flows))
                assert (await anext(versions)).version == n_flows
                await flows_become(service, "r", (f"wanted {n_flows}",))
                await asyncio.sleep(1.0)
        async with run_embedded_server(tmp_path) as server, serving(server.options) as service:
            await asyncio.sleep(0.5)
            counting.cancel()
            await asyncio.wait([counting])
            await until(lambda: publisher.statistics.kept_messages == 0)
            await first.__aexit__(None, None, None)
            await other.__aexit__(None, None, None)
            assert add_up(await service.read_publisher_reports("p")) == counted
            assert await service.read_record("receiver", "r") is None
        assert {type(fault) for fault in faults} == {ControlLostError}
        assert len(faults) == 6

    run(work())


def test_a_server_that_lost_its_disk_gets_what_members_have(tmp_path: Path) -> None:
    async def work() -> None:
        control = Control(tmp_path)
        async with run_embedded_server(tmp_path) as server, serving(server.options) as service:
            await service.decide(plan_of(1))
            seat = control.seat_receiver("r", ("a",), lambda fault: None)
            other = control.seat_publisher("p", None, lambda fault: None)
            await seat.__aenter__()
            publisher = await other.__aenter__()
            assert publisher.first is not None
        shutil.rmtree(tmp_path / "jetstream")
        async with run_embedded_server(tmp_path) as server, serving(server.options) as service:
            await flows_become(service, "r", ("a",))
            await service.decide(plan_of(2))
            found = await anext(publisher.versions())
            assert (found.version, len(found.plan.flows)) == (1, 2)
            publisher.count("a")
            publisher.report(1, publisher_statistics())
            await seat.__aexit__(None, None, None)
            await other.__aexit__(None, None, None)
            assert add_up(await service.read_publisher_reports("p"))["a"] == 1

    run(work())


def test_a_member_whose_control_plane_is_gone_for_good_goes_on_and_says_what_is_not_counted(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        faults: list[DistributaryError] = []
        async with run_embedded_server(tmp_path) as server, serving(server.options):
            taken = Control(tmp_path).seat_publisher("p", None, faults.append)
            seat = await taken.__aenter__()
        for _ in range(3):
            seat.count("a")
            seat.report(1, publisher_statistics())
            await asyncio.sleep(0.1)
        await until(lambda: not seat.statistics.connected)
        assert seat.statistics.kept_messages == 3
        await taken.__aexit__(None, None, None)
        assert [type(fault) for fault in faults] == [ControlLostError, CountsLostError]
        assert "3 messages" in str(faults[1])

    run(work())


def test_what_is_wrong_at_the_start_is_one_line(tmp_path: Path) -> None:
    async def join(control: Control) -> None:
        async with control.seat_receiver("r", (), pytest.fail):
            pass

    async def work() -> None:
        with pytest.raises(ServerAwayError, match="no server was ever started"):
            await join(Control(tmp_path, within=0.2))
        with pytest.raises(ServerAwayError):
            await join(Control("nats://127.0.0.1:1", within=0.2))
        async with run_embedded_server(tmp_path) as server:
            url = server.options.url
            with pytest.raises(ControlAwayError, match=r"'distributary' within 0\.2 s"):
                await join(Control(tmp_path, within=0.2))
            for wrong in (Control(url), Control(NatsOptions(url, token="wrong"))):
                with pytest.raises(ServerRefusedError) as caught:
                    await join(wrong)
                assert "\n" not in str(caught.value)
            found = read_server_file(tmp_path)
            assert found is not None
            with pytest.raises(ValueError, match="needs a name"):
                async with Control(tmp_path).seat_publisher("", None, pytest.fail):
                    pass
            async with serving(server.options, "other"):
                await join(Control(NatsOptions(url, token=found.token), "other"))
                address = url.replace("nats://", f"nats://{found.token}@")
                await join(Control(address, "other"))
        with pytest.raises(ValueError, match="not a valid prefix"):
            Control(tmp_path, "no prefix")

    run(work())


def test_interest_that_does_not_fit_into_a_message_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        faults: list[DistributaryError] = []
        many = tuple(f"flow {number}" for number in range(10_000))
        async with (
            run_embedded_server(tmp_path, max_payload=50_000) as server,
            serving(server.options) as service,
        ):
            control = Control(tmp_path)
            with pytest.raises(RecordTooLargeError, match="10,000 flows of 'r'"):
                async with control.seat_receiver("r", many, pytest.fail):
                    pass
            async with control.seat_receiver("r", ("a",), faults.append) as seat:
                seat.want(many)
                await until(lambda: faults)
                seat.want(["b"])
                await flows_become(service, "r", ("b",))
        assert [type(fault) for fault in faults] == [RecordTooLargeError]

    run(work())
