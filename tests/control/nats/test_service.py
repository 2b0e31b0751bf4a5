"""A control service on a real server: it keeps what it must, and says what goes wrong."""

from __future__ import annotations

import asyncio
import shlex
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import nats.js.errors
import pytest
from nats.js.api import DiscardPolicy, KeyValueConfig

from distributary.control.errors import (
    ControlRefusedError,
    KeptSettingsError,
    NoJetStreamError,
    SettingsTooLargeError,
)
from distributary.control.machine import ControlMachine
from distributary.control.messages import Ask, ConnectionChanged
from distributary.control.nats import Control, ControlClient, SparkChoice, term
from distributary.control.nats.layout import FORCE, SETTINGS, Layout
from distributary.control.nats.stream_command import make_command
from distributary.control.nats.stream_files import StreamFiles
from distributary.control.requests import SetMode
from distributary.control.settings import ControlSettings
from distributary.control.status import ControlStatus
from distributary.errors import StateError
from distributary.machines.nats import NatsOptions, connect_to_server, run_embedded_server
from distributary.machines.real.log_lines import LogLine
from tests.control.nats.services import (
    PATIENCE,
    answer_that,
    receiving,
    run,
    serving,
    status_that,
    version_of,
)

LAYOUT = Layout("distributary")


def test_a_service_that_is_started_again_goes_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server, receiving_all(tmp_path) as names:
            async with (
                serving(server.options, tmp_path / "one"),
                ControlClient(server.options) as client,
            ):
                before = await status_that(client, lambda found: len(found.receivers) == len(names))
                await status_that(client, lambda found: version_of(found) > 0)
                plan, changes = await client.plan_view(), await client.changes()
            async with (
                serving(server.options, tmp_path / "another"),
                ControlClient(server.options) as client,
            ):
                after = await client.status()
                assert after.force is not None
                assert version_of(after) >= version_of(before)
                assert [each.name for each in after.receivers] == sorted(names)
                assert (await client.plan_view()).groups == plan.groups
                assert (await client.changes())[-len(changes) :] == changes

    run(work())


def test_the_lease_is_renewed_while_a_plan_is_searched_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search takes seconds where limits are tight; another service would take over meanwhile."""
    begun, may_end = threading.Event(), threading.Event()
    carry_out = ControlMachine.on_message

    def search(machine: ControlMachine, sender: str, message: Any, now: float) -> Any:
        if isinstance(message, Ask) and isinstance(message.request, SetMode):
            begun.set()
            may_end.wait(PATIENCE)
        return carry_out(machine, sender, message, now)

    monkeypatch.setattr(ControlMachine, "on_message", search)

    async def work() -> None:
        async with (
            run_embedded_server(tmp_path) as server,
            serving(server.options, tmp_path / "one"),
            ControlClient(server.options, within=PATIENCE) as client,
            connect_to_server(server.options, name="test") as nc,
        ):
            lease = await nc.jetstream().key_value(LAYOUT.lease)
            order = asyncio.create_task(client.set_mode("manual"))
            try:
                await asyncio.to_thread(begun.wait, PATIENCE)
                before = (await lease.get("service")).revision or 0
                await answer_that(
                    lambda: lease.get("service"), lambda found: (found.revision or 0) > before + 1
                )
                assert not order.done()
            finally:
                may_end.set()
            await order
            await status_that(client, lambda found: found.mode == "manual")  # not a late answer

    run(work())


class receiving_all:  # noqa: N801 - reads as a verb where it is used
    """Three receivers, whose flows overlap."""

    def __init__(self, folder: Path) -> None:
        self._all = [receiving(folder, name, *name) for name in ("abc", "bcd", "cde")]

    async def __aenter__(self) -> list[str]:
        self._joined = [asyncio.create_task(each.__aenter__()) for each in self._all]
        return ["abc", "bcd", "cde"]

    async def __aexit__(self, *raised: object) -> None:
        await asyncio.gather(*self._joined)
        for each in self._all:
            await each.__aexit__(None, None, None)


def test_nobody_counts_as_gone_for_what_the_machine_slept_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a laptop slept: its server as well, so no connection was lost."""
    slept, heard = 0.0, list[Any]()
    take = ControlMachine.on_message

    def listen(machine: ControlMachine, sender: str, message: Any, now: float) -> Any:
        heard.append(message)
        return take(machine, sender, message, now)

    monkeypatch.setattr(term, "count_seconds", lambda: time.monotonic() + slept)
    monkeypatch.setattr(ControlMachine, "on_message", listen)

    async def work() -> None:
        nonlocal slept
        async with run_embedded_server(tmp_path) as server, serving(server.options, tmp_path / "s"):
            await asyncio.sleep(0.5)
            assert not [each for each in heard if isinstance(each, ConnectionChanged)]
            slept = 3600.0
            while not {ConnectionChanged(False), ConnectionChanged(True)} <= {
                each for each in heard if isinstance(each, ConnectionChanged)
            }:
                await asyncio.sleep(0.02)

    run(work())


def test_what_operators_chose_is_kept_over_restarts(tmp_path: Path) -> None:
    limits = "[groups]\nmembers = 7\n"

    async def work() -> None:
        said: list[LogLine] = []
        async with run_embedded_server(tmp_path) as server:
            async with (
                serving(server.options, tmp_path / "s"),
                ControlClient(server.options) as client,
            ):
                assert (await client.set_mode("manual", "ann")).says
                await client.set_limits(limits)
                await client.pin("f", 2)
                with pytest.raises(ControlRefusedError, match=r"group 4.*0 to 3"):
                    await client.pin("f", 4)
            given: dict[str, Any] = {"mode": "auto", "pins": {"g": 1}}
            async with (
                serving(server.options, tmp_path / "s", log=said.append, tolerance=0.9, **given),
                ControlClient(server.options) as client,
            ):
                found = await client.status()
                assert (found.mode, found.limits, found.pins) == ("manual", limits, {"f": 2})
                assert found.tolerance == 0.9  # of the command line, as it is no operator's
                assert [entry.who for entry in await client.changes()][-1] == "ann"
            warned = [line.says for line in said if line.level == "warning"]
            assert sum("--approve does not count any more" in says for says in warned) == 1
            assert sum("--pins does not count any more" in says for says in warned) == 1
            with pytest.raises(KeptSettingsError, match=r"flow 'f'.*as many groups as before"):
                async with serving(server.options, tmp_path / "s", groups=2):
                    pass

    run(work())


def test_what_is_too_long_for_the_server_is_refused_or_shortened(tmp_path: Path) -> None:
    long = "\ufeff" * 3_000  # three bytes each, and seven in the text of an entry

    async def work() -> None:
        async with run_embedded_server(tmp_path, max_payload=10_000) as server:
            options = server.options
            async with serving(options, tmp_path / "s"), ControlClient(options) as client:
                await client.set_limits("#" * 6_000)
                with pytest.raises(ControlRefusedError, match=r"bytes, and the NATS server stores"):
                    await client.pin("f" * 4_000, 2)
                async with receiving(options, "r", long):
                    await status_that(client, version_of)
                entry = (await client.changes())[0]
                assert (entry.what, entry.version) == ("in force", 1)
            with pytest.raises(SettingsTooLargeError, match=r"raise its max_payload"):
                async with serving(options, tmp_path / "t", prefix="other", limits="#" * 9_900):
                    pass

    run(work())


def test_a_damaged_key_is_an_alarm_and_the_value_before_counts(tmp_path: Path) -> None:
    async def damage(options: NatsOptions, bucket: str, key: str) -> None:
        async with connect_to_server(options, name="vandal") as nc:
            await (await nc.jetstream().key_value(bucket)).put(key, b"{")

    async def work() -> None:
        async with run_embedded_server(tmp_path) as server, receiving_all(tmp_path):
            options = server.options
            async with serving(options, tmp_path / "s"), ControlClient(options) as client:
                version = version_of(await status_that(client, version_of))
                await client.set_mode("manual")
                await damage(options, LAYOUT.members, LAYOUT.member_key("receiver", "broken"))
                found = await status_that(client, lambda found: found.alarms)
                assert [alarm.what for alarm in found.alarms] == ["damaged value"]
                assert "receiver.broken" in found.alarms[0].says
            await damage(options, LAYOUT.plan, FORCE)
            await damage(options, LAYOUT.settings, SETTINGS)
            async with serving(options, tmp_path / "s"), ControlClient(options) as client:
                found = await client.status()
                assert version_of(found) >= version
                assert found.mode == "manual"
                damaged = {alarm.who for alarm in found.alarms if alarm.what == "damaged key"}
                assert damaged == {FORCE, SETTINGS}

    run(work())


def test_a_plan_that_is_gone_from_the_store_is_made_anew(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server, receiving_all(tmp_path):
            options = server.options
            async with serving(options, tmp_path / "s"), ControlClient(options) as client:
                version = version_of(await status_that(client, version_of))
            async with connect_to_server(options, name="vandal") as nc:
                await nc.jetstream().purge_stream(f"OBJ_{LAYOUT.plans}")
            async with serving(options, tmp_path / "s"), ControlClient(options) as client:
                found = await status_that(client, lambda found: version_of(found) > version)
                assert "plan gone" in {alarm.what for alarm in found.alarms}
                assert (await client.flow("c")).wanted_by == ["abc", "bcd", "cde"]

    run(work())


def test_a_server_that_does_not_store_is_an_alarm_and_nothing_is_lost(tmp_path: Path) -> None:
    """Its bucket of versions has room for one; until there is more, the second waits."""
    full = KeyValueConfig(LAYOUT.plan, max_bytes=700, history=1)

    async def work() -> None:
        async with run_embedded_server(tmp_path) as server:
            options = server.options
            async with connect_to_server(options, name="operator of the server") as nc:
                js = nc.jetstream()
                await js.create_key_value(full)
                config = (await js.stream_info(f"KV_{LAYOUT.plan}")).config
                async with (
                    serving(options, tmp_path / "s"),
                    ControlClient(options) as client,
                    receiving(tmp_path, "r", "a"),
                ):
                    await status_that(client, version_of)
                    async with receiving(tmp_path, "s", *"f" * 30, "b" * 200):
                        found = await status_that(client, lambda found: found.alarms)
                        assert [alarm.what for alarm in found.alarms] == ["server refuses to store"]
                        assert "no room" in found.alarms[0].says
                        assert "more room" in found.alarms[0].says
                        version = version_of(found)
                        config.max_bytes = 1 << 20
                        await js.update_stream(config)
                        found = await status_that(
                            client, lambda found: not found.alarms and version_of(found) > version
                        )
                        assert (await client.flow("b" * 200)).wanted_by == ["s"]

    run(work())


def test_nobody_is_forgotten_while_the_server_stores_no_reports(tmp_path: Path) -> None:
    """As after a full disk, if only the stream of reports has met it."""

    async def work() -> None:
        async with run_embedded_server(tmp_path) as server:
            options = server.options
            async with (
                connect_to_server(options, name="operator of the server") as nc,
                serving(options, tmp_path / "s", gone_after=8.0, forget_after=12.0),
                ControlClient(options) as client,
                receiving(tmp_path, "r", "a"),
            ):
                await status_that(client, lambda found: found.receivers)
                js = nc.jetstream()
                config = (await js.stream_info(LAYOUT.reports)).config
                await js.update_stream(config.evolve(max_msgs=1, discard=DiscardPolicy.NEW))
                found = await status_that(client, lambda found: refusals_of(found))
                assert "stores no reports" in refusals_of(found)[0]
                await asyncio.sleep(14.0)
                found = await client.status()
                assert [each.name for each in found.receivers] == ["r"]
                await js.update_stream(config)
                found = await status_that(client, lambda found: not refusals_of(found))
                await status_that(client, lambda found: found.receivers[0].alive)

    run(work())


def refusals_of(status: ControlStatus) -> list[str]:
    return [alarm.says for alarm in status.alarms if alarm.what == "server refuses to store"]


# --- the stream -----------------------------------------------------------------------------------


def shell(script: str) -> SparkChoice:
    """A stream that is a shell script, with its folder as $0."""

    def make(files: StreamFiles, settings: object, more: Sequence[str]) -> list[str]:
        return ["sh", "-c", script, str(files.folder)]

    return SparkChoice("embedded", command=make)


def test_a_stream_that_ends_is_started_again_and_its_last_words_are_told(tmp_path: Path) -> None:
    async def work() -> None:
        broken = shell("echo 'error: there is no Java' >&2; exit 3")
        async with (
            run_embedded_server(tmp_path) as server,
            serving(server.options, tmp_path / "s", spark=broken),
            ControlClient(server.options) as client,
        ):
            found = await status_that(client, lambda found: found.stream.restarts)
            assert found.stream.state == "restarting"
            assert "exited with 3" in found.stream.last_error
            assert "there is no Java" in found.stream.last_error

    run(work())


def test_a_stream_that_is_killed_is_started_again(tmp_path: Path) -> None:
    script = 'echo $$ > "$0/pid"; exec sleep 3600'

    async def work() -> None:
        async with (
            run_embedded_server(tmp_path) as server,
            serving(server.options, tmp_path / "s", spark=shell(script)),
            ControlClient(server.options) as client,
        ):
            path = tmp_path / "s/stream/pid"
            pid = await answer_that(lambda: read(path), bool)
            killing = await asyncio.create_subprocess_exec("kill", "-9", pid)
            await killing.wait()
            found = await status_that(client, lambda found: found.stream.restarts)
            assert "killed by signal 9" in found.stream.last_error
            await answer_that(lambda: read(path), lambda found: found not in ("", pid))

    async def read(path: Path) -> str:
        return path.read_text().strip() if path.exists() else ""

    run(work())


@pytest.mark.parametrize("mode", ["embedded", "external"])
def test_only_the_stream_waits_for_a_folder_that_cannot_be_written(
    tmp_path: Path, mode: Literal["embedded", "external"]
) -> None:
    """At first the whole folder, then a file of the limits; a full disk is the same to it."""
    folder = tmp_path / "s/stream"
    folder.parent.mkdir()
    folder.touch()  # a file, where a folder should be

    def make(files: StreamFiles, settings: ControlSettings, more: Sequence[str]) -> list[str]:
        make_command(files, settings, more)  # it writes the limits
        return ["sh", "-c", "exec sleep 3600"]

    def whats(status: ControlStatus) -> set[str]:
        return {alarm.what for alarm in status.alarms}

    async def work() -> None:
        said: list[LogLine] = []
        spark = SparkChoice(mode, command=make)
        async with (
            run_embedded_server(tmp_path) as server,
            serving(server.options, tmp_path / "s", spark=spark, log=said.append),
            ControlClient(server.options) as client,
            receiving_all(tmp_path),
        ):
            found = await status_that(client, lambda found: "stream folder" in whats(found))
            assert "not a directory" in found.alarms[0].says
            await status_that(client, version_of)  # all else goes on
            folder.unlink()
            await status_that(client, lambda found: not found.alarms)
            (folder / "limits.toml/in the way").mkdir(parents=True)
            await client.set_limits("[groups]\nmembers = 7\n")
            what = "stream down" if mode == "embedded" else "stream folder"
            found = await status_that(client, lambda found: what in whats(found))
            assert "limits.toml" in found.alarms[0].says
            (folder / "limits.toml/in the way").rmdir()
            (folder / "limits.toml").rmdir()
            await answer_that(lambda: is_file(folder / "limits.toml"), bool)

    async def is_file(path: Path) -> bool:
        return path.is_file()

    run(work())


def test_who_runs_spark_alone_is_told_the_command(tmp_path: Path) -> None:
    async def work() -> None:
        said: list[LogLine] = []
        folder = tmp_path / "s"
        async with run_embedded_server(tmp_path) as server, receiving_all(tmp_path):
            spark = SparkChoice("external", ("--master", "spark://host:7077"))
            async with (
                serving(server.options, folder, spark=spark, log=said.append),
                ControlClient(server.options) as client,
            ):
                found = await status_that(client, lambda found: found.stream.behind_rows)
                assert found.stream.state == "external"
                await status_that(client, lambda found: version_of(found) > 0)
                await answer_that(lambda: listed(folder / "stream/subscriptions"), bool)
                await answer_that(lambda: listed(folder / "stream/base"), bool)
                await client.pin("c", 2)
                await answer_that(lambda: commands_in(said), lambda found: len(found) == 2)
        first, second = (shlex.split(line) for line in await commands_in(said))
        assert first[:3] == ["distributary", "pipeline", "stream"]
        assert first[-2:] == ["--master", "spark://host:7077"]
        assert "--pins" not in first
        pins = Path(second[second.index("--pins") + 1])
        assert pins.read_text() == "flow,group\nc,2\n"

    async def listed(folder: Path) -> list[str]:
        return [path.name for path in folder.iterdir()] if folder.exists() else []

    async def commands_in(said: list[LogLine]) -> list[str]:
        return [line.says for line in said if line.what == "run the stream yourself"]

    run(work())


# --- what cannot work -----------------------------------------------------------------------------


def test_what_cannot_work_is_one_line(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path / "plain", jetstream=False) as server:
            with pytest.raises(NoJetStreamError) as caught:
                async with serving(server.options, tmp_path / "s"):
                    pass
            assert "\n" not in str(caught.value)
        async with (
            run_embedded_server(tmp_path / "server") as server,
            serving(server.options, tmp_path / "s"),
        ):
            with pytest.raises(StateError, match="another process uses this folder"):
                async with serving(server.options, tmp_path / "s"):
                    pass

    (tmp_path / "plain").mkdir()
    (tmp_path / "server").mkdir()
    run(work())


def test_an_order_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server:
            options = server.options
            async with (
                serving(options, tmp_path / "s"),
                connect_to_server(options, name="x") as nc,
            ):
                for subject in (LAYOUT.look, LAYOUT.order("x")):
                    for data in (b"", b"{", b'{"type":"nosuch"}', b"[" * 100_000):
                        answer = await nc.request(subject, data)
                        assert b'"type":"refused"' in answer.data
                await nc.publish(LAYOUT.order("x"), b"{")  # nobody wants an answer
                order = msgspec.json.encode({"type": "mode", "mode": "manual", "by": ""})
                answer = await nc.request(LAYOUT.order("ann b"), order)
                assert b'"type":"done"' in answer.data
            async with serving(options, tmp_path / "s"), ControlClient(options) as client:
                assert (await client.changes())[0].who == "ann b"
                await client.set_mode("auto", "bob")
                assert (await client.changes())[0].who == "bob"

    run(work())


def test_who_is_another_operator_in_words_is_both_in_the_log(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server, serving(server.options, tmp_path / "s"):
            async with connect_to_server(server.options, name="x") as nc:
                order = msgspec.json.encode({"type": "mode", "mode": "manual", "by": "ann"})
                await nc.request(LAYOUT.order("dashboard"), order)
            async with ControlClient(server.options) as client:
                assert (await client.changes())[0].who == "ann (as dashboard)"

    run(work())


def test_members_find_no_control_plane_where_none_was(tmp_path: Path) -> None:
    async def work() -> None:
        async with run_embedded_server(tmp_path) as server:
            async with connect_to_server(server.options, name="x") as nc:
                with pytest.raises(nats.js.errors.NotFoundError):
                    await nc.jetstream().key_value(LAYOUT.settings)
            control = Control(tmp_path, within=20.0)
            waiting = asyncio.ensure_future(seat(control))
            async with serving(server.options, tmp_path / "s"):
                await waiting  # it waited for the service

    async def seat(control: Control) -> None:
        async with control.seat_receiver("r", ("a",), pytest.fail):
            pass

    run(work())
