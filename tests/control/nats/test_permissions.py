"""What each name may do on a server that knows names: real clients with each role's credentials."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from distributary.control.errors import ControlDeniedError, ServerRefusedError
from distributary.control.nats import Control, ControlClient
from distributary.control.nats.layout import FORCE, Layout
from distributary.control.nats.permissions import ROLES, read_users
from distributary.delivery.udp.control import PlanVersion
from distributary.machines.nats import NatsOptions, connect_to_server, run_embedded_server
from distributary.machines.real.tokens import TokenFileError
from tests.control.nats.services import run, serving, status_that, version_of

LAYOUT = Layout("distributary")
NAMES = {
    "operator": {"ann": "token of ann, an operator"},
    "viewer": {"vic": "token of vic, a viewer"},
    "publisher": {"feed *.>": "token of a publisher's", "both": "token of both of them"},
    "receiver": {"desk 1": "token of desk 1's receiver", "both": "token of both of them"},
}


def write_users(folder: Path, names: object = NAMES) -> Path:
    path = folder / "users.json"
    path.touch(0o600)
    path.write_text(json.dumps(names))
    return path


class Guarded:
    """A service on a server that knows names."""

    def __init__(self, url: str) -> None:
        self._url = url

    def be(self, name: str, token: str | None = None) -> NatsOptions:
        """Connect as a name, with its token unless another is given."""
        own = next(names[name] for names in NAMES.values() if name in names)
        return NatsOptions(self._url, user=name, password=token or own)


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[Guarded]:
    users = read_users(write_users(folder), "distributary")
    async with (
        run_embedded_server(folder, users=users) as server,
        serving(server.options, folder / "s"),
    ):
        yield Guarded(server.options.url)


async def list_refused(options: NatsOptions, subjects: list[str]) -> list[str]:
    """Publish to all of them; those that the server refuses to carry."""
    said: list[str] = []

    async def note(error: Exception) -> None:
        said.append(str(error).lower())

    async with connect_to_server(options, name="x", on_error=note) as nc:
        for subject in (*subjects, "nobodys"):  # the server refuses in this order
            await nc.publish(subject, b'{"type":"mode","mode":"manual","by":"ann"}')
        while not any('"nobodys"' in line for line in said):
            await asyncio.sleep(0.01)
    return [each for each in subjects if any(f'"{each.lower()}"' in line for line in said)]


def test_an_operator_decides_and_is_known_by_name(tmp_path: Path) -> None:
    async def work() -> None:
        async with guarded(tmp_path) as plane, ControlClient(plane.be("ann")) as client:
            assert (await client.set_mode("manual", "ann")).says
            assert (await client.set_mode("auto", "the boss")).says
            assert [entry.who for entry in await client.changes()] == ["the boss (as ann)", "ann"]

    run(work())


@pytest.mark.parametrize("name", ["vic", "desk 1", "feed *.>"])
def test_others_look_and_cannot_operate(tmp_path: Path, name: str) -> None:
    async def work() -> None:
        async with guarded(tmp_path) as plane, ControlClient(plane.be(name)) as client:
            assert (await client.status()).mode == "auto"
            for order in (client.set_mode("manual"), client.approve(1), client.rollback()):
                with pytest.raises(ControlDeniedError) as caught:
                    await order
                assert "operate the control plane" in str(caught.value)
            ann = [LAYOUT.order("ann")]
            assert await list_refused(plane.be(name), ann) == ann
            assert (await client.status()).mode == "auto"

    run(work())


def test_members_join_with_their_own_names_alone(tmp_path: Path) -> None:
    async def work() -> None:
        async with guarded(tmp_path) as plane, ControlClient(plane.be("vic")) as client:
            desk, feed = plane.be("desk 1"), plane.be("feed *.>")
            async with (
                Control(desk).seat_receiver("desk 1", ("a",), pytest.fail),
                Control(feed).seat_publisher("feed *.>", ("a",), pytest.fail) as publisher,
            ):
                found = await status_that(client, version_of)
                assert [each.name for each in found.receivers] == ["desk 1"]
                version = publisher.first or await first_of(publisher.versions())
                assert version.plan.flows == ("a",)
            for role in ("receiver", "publisher"):
                with pytest.raises(ControlDeniedError, match=f"be {role} 'another'"):
                    await seat(Control(desk), role, "another")

    run(work())


async def first_of(versions: AsyncIterator[PlanVersion]) -> PlanVersion:
    return await anext(versions)


async def seat(control: Control, role: str, name: str) -> None:
    if role == "receiver":
        async with control.seat_receiver(name, (), pytest.fail):
            pass
    else:
        async with control.seat_publisher(name, None, pytest.fail):
            pass


def test_a_member_writes_nothing_of_others(tmp_path: Path) -> None:
    """Neither keys nor reports of others, nor what the service writes, nor by way of streams."""
    members, plan = LAYOUT.members, LAYOUT.plan
    others = [
        f"$KV.{members}.{LAYOUT.member_key('receiver', 'other')}",
        f"$KV.{members}.{LAYOUT.member_key('publisher', 'desk 1')}",
        f"$KV.{plan}.{FORCE}",
        f"$KV.{LAYOUT.settings}.settings",
        f"$KV.{LAYOUT.lease}.service",
        LAYOUT.report("receiver", "other"),
        LAYOUT.audit_subject,
    ]
    api = [
        f"$JS.API.STREAM.{what}.KV_{members}"
        for what in ("DELETE", "PURGE", "UPDATE", "MSG.DELETE")
    ]
    api += [f"$JS.API.CONSUMER.CREATE.KV_{members}", f"$JS.API.CONSUMER.CREATE.{LAYOUT.reports}"]
    api += ["$JS.API.STREAM.CREATE.mine"]

    async def work() -> None:
        async with guarded(tmp_path) as plane:
            own = f"$KV.{members}.{LAYOUT.member_key('receiver', 'desk 1')}"
            asked = [own, *others, *api]
            assert await list_refused(plane.be("desk 1"), asked) == asked[1:]

    run(work())


def test_a_member_hears_nothing_of_others(tmp_path: Path) -> None:
    async def work() -> None:
        denied: list[str] = []

        async def note(error: Exception) -> None:
            denied.append(str(error))

        async with guarded(tmp_path) as plane:
            options = plane.be("desk 1")
            async with connect_to_server(options, name="x", on_error=note) as nc:
                wanted = (LAYOUT.all_orders, LAYOUT.all_reports, f"$KV.{LAYOUT.members}.>", ">")
                for subject in wanted:
                    await nc.subscribe(subject)
                while len(denied) < len(wanted):
                    await asyncio.sleep(0.01)
            assert all("permissions violation" in said.lower() for said in denied)

    run(work())


@pytest.mark.parametrize("token", ["guessed, and long enough", ""])
def test_a_wrong_token_lets_nobody_in(tmp_path: Path, token: str) -> None:
    async def work() -> None:
        async with guarded(tmp_path) as plane:
            for options in (plane.be("desk 1", token or "x"), NatsOptions(plane.be("vic").url)):
                with pytest.raises(ServerRefusedError) as caught:
                    await seat(Control(options), "receiver", "desk 1")
                assert "check the credentials" in str(caught.value)
                assert "\n" not in str(caught.value)
                with pytest.raises(ServerRefusedError):
                    async with ControlClient(options):
                        pass

    run(work())


def test_a_name_with_two_roles_may_do_both(tmp_path: Path) -> None:
    async def work() -> None:
        async with guarded(tmp_path) as plane:
            await seat(Control(plane.be("both")), "receiver", "both")
            await seat(Control(plane.be("both")), "publisher", "both")

    run(work())


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ({"operator": {"a": "x" * 20}, "viewer": {"a": "y" * 20}}, "'a' has two tokens"),
        ({"viewer": {"distributary": "y" * 20}}, "the service itself"),
        ({"boss": {"a": "y" * 20}}, "'boss' is not a role"),
        ({"viewer": {"a": "short"}}, "not a text of 16"),
    ],
)
def test_a_file_of_names_that_makes_no_sense_is_refused(
    tmp_path: Path, names: object, says: str
) -> None:
    with pytest.raises(TokenFileError, match=says):
        read_users(write_users(tmp_path, names), "distributary")


def test_all_roles_are_tried_here() -> None:
    assert set(NAMES) == set(ROLES)
