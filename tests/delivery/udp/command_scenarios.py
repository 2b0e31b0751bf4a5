"""What happens in the namespace when the commands are run, as processes of their own."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import signal
import socket
import struct
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from distributary.delivery.udp import Publisher, Receiver
from distributary.files import write_plan
from tests.delivery.machines import simple_plan
from tests.delivery.udp.scenarios import KEY, LOOPBACK, QUICK, publish_all, read_page
from tests.warm import find_command

COMMAND = (sys.executable, "-m", "distributary")
_started: list[asyncio.subprocess.Process] = []  # in this scenario


async def start_command(*words: str, **options: Any) -> asyncio.subprocess.Process:
    """Start a command as a process that has all modules imported."""
    command = await asyncio.to_thread(find_command)
    return await _start(*command, *words, **options)


async def start_elsewhere(
    inside: Sequence[str], *words: str, **options: Any
) -> asyncio.subprocess.Process:
    """Start a command as a user does, by another command that takes it elsewhere."""
    return await _start(*inside, *COMMAND, *words, **options)


async def start_cold_command(*words: str, **options: Any) -> asyncio.subprocess.Process:
    """Start a command as a user does."""
    return await _start(*COMMAND, *words, **options)


async def _start(
    *words: str, stdin: int = asyncio.subprocess.DEVNULL, **options: Any
) -> asyncio.subprocess.Process:
    """Start a process; its stdin is never the worker's own, with the names of the scenarios."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, stdin=stdin, stdout=pipe, stderr=pipe, **options
    )
    _started.append(process)
    return process


def kill_commands() -> None:
    """End what a scenario that failed has left behind."""
    for process in _started:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    _started.clear()


async def until_joined(group: str, members: int = 1) -> None:
    """Wait until sockets in this namespace have joined a group, at least so many."""
    wanted = "".join(f"{int(part):02X}" for part in reversed(group.split(".")))
    while _count_members(wanted) < members:
        await asyncio.sleep(0.02)


def _count_members(address: str) -> int:
    """How many sockets are members of a group, by its address as the kernel prints it."""
    rows = (line.split() for line in Path("/proc/net/igmp").read_text().splitlines())
    return sum(int(row[1]) for row in rows if row[0] == address)


async def commands_deliver_and_end_with_ctrl_c(folder: str) -> None:
    plan = simple_plan([0, 0, 1], [0, 1])
    where = Path(folder)
    write_plan(plan, {}, where / "plan")
    key = where / "key"
    key.touch(0o600)
    key.write_bytes(KEY)
    shared = ("--plan", str(where / "plan"), "--interface", "lo", "--key-file", str(key))
    listening = await start_cold_command(
        "receive", *shared[2:], "--base", "239.192.77.0", "--flow", "f0", "--flow", "f2", "--out",
        str(where / "got.jsonl"), "--json", "--metrics", "0",
    )  # fmt: skip
    await until_joined("239.192.77.0")
    rows = [{"flow": f"f{at % 3}", "payload": f"message {at}"} for at in range(999)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    sending = await start_cold_command(
        "publish", *shared, "--json", "--rate", "5000", stdin=asyncio.subprocess.PIPE
    )
    told, faults = await sending.communicate(lines.encode())
    assert sending.returncode == 0, faults
    assert json.loads(told)["messages"] == 999
    while len((where / "got.jsonl").read_bytes().splitlines()) < 666:
        await asyncio.sleep(0.02)
    listening.send_signal(2)
    told, faults = await listening.communicate()
    assert listening.returncode == 0, faults
    statistics = json.loads(told)
    assert statistics["messages"] == 666
    (latency,) = statistics["latencies"]
    assert latency["packets"] + latency["repairs"] > 0
    assert latency["median_seconds"] <= latency["p99_seconds"] <= latency["largest_seconds"]
    assert b"Traceback" not in faults
    got = [json.loads(line) for line in (where / "got.jsonl").read_text().splitlines()]
    for flow in ("f0", "f2"):
        wanted = [row["payload"] for row in rows if row["flow"] == flow]
        assert [row["payload"] for row in got if row.get("flow") == flow] == wanted


async def a_receiver_with_nothing_but_its_name(folder: str) -> None:
    """The sender says what its plan brings to it, within the authentication."""
    where = Path(folder)
    write_plan(simple_plan([0, 0, 1], [0, 1]), {}, where / "plan")
    key = where / "key"
    key.touch(0o600)
    key.write_bytes(KEY)
    shared = ("--base", "239.192.77.0", "--interface", "lo", "--key-file", str(key))
    listening = await start_command("receive", "--as", "r", *shared)
    stranger = await start_command("receive", "--as", "stranger", *shared)
    assert listening.stdout is not None
    assert stranger.stderr is not None
    await until_joined("239.192.77.0", 2)
    async with Publisher(
        where / "plan", LOOPBACK, params=replace(QUICK, max_age=0), key=KEY
    ) as publisher:
        told = json.loads(await listening.stdout.readline())
        assert told == {"report": "brought", "version": 1, "flows": ["f0", "f1", "f2"]}
        said = (await stranger.stderr.readline()).decode()
        assert "version 1 of the sender's plan brings nothing to 'stranger'" in said, said
        for flow in ("f2", "f0"):
            await publisher.publish(flow, flow.encode())
        got = [json.loads(await listening.stdout.readline()) for _ in range(2)]
        assert sorted((found["flow"], found["sequence"]) for found in got) == [("f0", 1), ("f2", 1)]
    for command in (listening, stranger):
        command.send_signal(2)
        _, faults = await command.communicate()
        assert command.returncode == 0, faults


async def ctrl_c_ends_a_publisher(folder: str) -> None:
    write_plan(simple_plan([0], [0]), {}, Path(folder) / "plan")
    sending = await start_command(
        "publish", "--plan", str(Path(folder) / "plan"), "--interface", "lo", "--json",
        stdin=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert sending.stdin is not None
    async with Receiver(Path(folder) / "plan", ["f0"], name="r", network=LOOPBACK) as receiver:
        await receiver.subscribe(["f0"])  # the publisher may have started long before
        sending.stdin.write(b"f0\tone\nf0\ttwo\n")
        for payload in (b"one", b"two"):
            assert (await receiver.receive()).payload == payload
        sending.send_signal(2)
        told, faults = await sending.communicate()
    assert sending.returncode == 130, (sending.returncode, faults)
    assert json.loads(told)["interrupted"] is True
    assert b"Traceback" not in faults


async def a_stdout_that_nobody_reads(folder: str) -> None:
    """A receiver goes on taking messages in, and repairing, while what it prints is not read."""
    plan = simple_plan([0, 0], [0])
    write_plan(plan, {}, Path(folder) / "plan")
    listening = await start_command(
        "receive", "--plan", str(Path(folder) / "plan"), "--interface", "lo", "--as", "r",
        "--metrics", "0", limit=1 << 12,
    )  # fmt: skip
    assert listening.stderr is not None
    assert listening.stdout is not None
    page = (await listening.stderr.readline()).decode().split()[-1]
    await until_joined("239.192.77.0")
    sent: dict[str, list[bytes]] = defaultdict(list)
    async with Publisher(plan, LOOPBACK, params=QUICK) as publisher:
        await publish_all(publisher, plan.flows, 20_000, sent)  # far more than a pipe holds
        while "receiver_messages_total 20000.0" not in await asyncio.to_thread(read_page, page):
            await asyncio.sleep(0.02)
    listening.send_signal(2)
    got: dict[str, list[bytes]] = defaultdict(list)
    async for line in listening.stdout:
        row = json.loads(line)
        if "report" in row:  # that the publisher has left
            continue
        assert row["sequence"] == len(got[row["flow"]]) + 1
        got[row["flow"]].append(row["payload"].encode())
    assert got == sent
    faults = await listening.stderr.read()
    assert await listening.wait() == 0, faults


async def a_flow_that_no_plan_has(folder: str) -> None:
    """It is said at once, on stderr and in its place among the lines, and so is that it comes."""
    where = Path(folder)
    write_plan(simple_plan([0], [0]), {}, where / "plan")
    listening = await start_command(
        "receive", "--plan", str(where / "plan"), "--interface", "lo", "--as", "r",
        "--flow", "f1", "--flow", "f0",
    )  # fmt: skip
    assert listening.stdout is not None
    assert listening.stderr is not None
    said = (await listening.stderr.readline()).decode()
    assert "does not bring 'f1' to 'r'" in said, said
    first = json.loads(await listening.stdout.readline())
    assert first == {"report": "unserved", "version": 0, "flows": ["f1"]}, first
    await until_joined("239.192.77.0")
    async with Publisher(
        where / "plan", LOOPBACK, params=replace(QUICK, max_age=0), watch_every=0.02
    ) as publisher:
        await publisher.publish("f0", b"old")
        assert json.loads(await listening.stdout.readline())["payload"] == "old"
        write_plan(simple_plan([0, 0], [0]), {}, where / "plan")
        assert json.loads(await listening.stdout.readline()) == {
            "report": "unserved", "version": 2, "flows": [],
        }  # fmt: skip
        while publisher.statistics.plan_version < 2:
            await asyncio.sleep(0.01)
        await publisher.publish("f1", b"new")
        assert json.loads(await listening.stdout.readline())["payload"] == "new"
    listening.send_signal(2)
    await listening.communicate()
    assert listening.returncode == 0


async def publishing_unknown_flows(folder: str, *more: str) -> None:
    where = Path(folder)
    write_plan(simple_plan([0], [0]), {}, where / "plan")
    flows = [f"f{at % 2}" for at in range(100)] + [f"unknown{at}" for at in range(30)]
    (where / "in.tsv").write_text("".join(f"{flow}\t{at}\n" for at, flow in enumerate(flows)))
    sending = await start_command(
        "publish", "--plan", str(where / "plan"), "--interface", "lo", "--from",
        str(where / "in.tsv"), "--stay", "10ms", *more,
    )  # fmt: skip
    told, faults = await sending.communicate()
    assert sending.returncode == 1, (sending.returncode, faults)
    said = " ".join(faults.decode().split())
    assert "80 messages were dropped" in said, said
    assert "'f1' (50), 'unknown0' (1)" in said, said
    assert "and 21 more" in said, said
    assert "Traceback" not in said
    if "--json" in more:
        document = json.loads(told)
        assert (document["messages"], document["unplanned_messages"]) == (50, 80)
        assert document["unplanned_flows"]["f1"] == 50
        assert len(document["unplanned_flows"]) == 31
    else:
        assert b"50 messages published" in told


async def calibrating(folder: str, *more: str) -> None:
    from distributary.files.calibration import read_prices

    out = Path(folder) / "calibration.json"
    factors = ("--messages-per-packet", "1", "--messages-per-packet", "8")
    asked = ("--seconds", "50ms", "--rounds", "1", *factors, *more)
    running = await start_cold_command("calibrate", "--out", str(out), "--json", *asked)
    told, faults = await running.communicate()
    assert running.returncode == 0, faults
    document = json.loads(told)
    assert document["alpha0"] + document["alpha1"] > 0
    assert [price["h"] for price in document["prices"]] == [1, 8]
    assert read_prices(out).alpha == document["alpha0"] + document["alpha1"] / 8


async def publishing_at_exported_addresses(folder: str, interface: str, *network: str) -> None:
    """A program of its own joins the addresses in the exported tables, and gets what is sent."""
    where = Path(folder)
    write_plan(simple_plan([0, 1, 2, 1], [0, 2, 1]), {}, where / "plan")
    exporting = await start_command(
        "export", str(where / "plan"), "--format", "csv", "--out", str(where / "out"),
        *(word.replace("--group-base", "--base") for word in network),
    )  # fmt: skip
    _, faults = await exporting.communicate()
    assert exporting.returncode == 0, faults
    with (where / "out/flows.csv").open(newline="") as file:
        places = {row["flow"]: (row["address"], int(row["port"])) for row in csv.DictReader(file)}
    assert len(set(places.values())) == 3
    with ExitStack() as stack:
        sockets = {
            place: stack.enter_context(_join_as_a_stranger(*place, interface))
            for place in set(places.values())
        }
        sending = await start_command(
            "publish", "--plan", str(where / "plan"), "--interface", interface, *network,
            stdin=asyncio.subprocess.PIPE,
        )  # fmt: skip
        lines = "".join(f"{flow}\tpayload of {flow}\n" for flow in places)
        _, faults = await sending.communicate(lines.encode())
        assert sending.returncode == 0, faults
        for flow, place in places.items():
            await _until_received(sockets[place], f"payload of {flow}".encode())


def _join_as_a_stranger(address: str, port: int, interface: str) -> socket.socket:
    """A socket that gets what is sent to one group, opened without any of our own code."""
    index = socket.if_nametoindex(interface)
    v6 = ":" in address
    joined = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
    joined.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    joined.bind((address, port, 0, index) if v6 else (address, port))
    group = socket.inet_pton(joined.family, address)
    if v6:
        wanted = group + struct.pack("@I", index)
        joined.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, wanted)
    else:
        wanted = group + struct.pack("@4si", bytes(4), index)
        joined.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, wanted)
    joined.setblocking(False)
    return joined


async def _until_received(joined: socket.socket, payload: bytes) -> None:
    """Wait for a payload; it may have come already, behind what was looked for before."""
    while payload not in joined.recv(65_535, socket.MSG_PEEK):
        joined.recv(65_535)


async def lines_that_change_interest(folder: str) -> None:
    where = Path(folder)
    plan = simple_plan([0, 1], [0, 1])
    write_plan(plan, {}, where / "plan")
    command = await start_command(
        "receive", "--plan", str(where / "plan"), "--interface", "lo", "--as", "r", "--flow", "f0",
        stdin=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert command.stdin is not None
    assert command.stdout is not None
    assert command.stderr is not None

    async def read_line() -> dict[str, Any]:
        assert command.stdout is not None
        found: dict[str, Any] = json.loads(await command.stdout.readline())
        return found

    async def publish_both(payload: bytes) -> None:
        for flow in ("f1", "f0"):
            await publisher.publish(flow, payload)

    await until_joined("239.192.77.0")
    async with Publisher(plan, LOOPBACK, params=replace(QUICK, max_age=0)) as publisher:
        command.stdin.write(b"what?\n+f1\n")
        while (await read_line()).get("report") != "subscribed":
            pass
        await publish_both(b"1")
        came = [await read_line(), await read_line()]
        assert sorted((found["flow"], found["payload"]) for found in came) == [
            ("f0", "1"),
            ("f1", "1"),
        ]
        command.stdin.write(b"-f1\n-f0\n+f0\n")
        while (await read_line()).get("report") != "subscribed":
            pass
        await publish_both(b"2")
        assert (await read_line())["payload"] == "2"
        command.stdin.close()  # the end of the lines is not the end of the command
        await publish_both(b"3")
        assert {
            key: found[key] for found in [await read_line()] for key in ("flow", "payload")
        } == {
            "flow": "f0",
            "payload": "3",
        }
    command.send_signal(signal.SIGINT)
    _, told = await command.communicate()
    assert command.returncode == 0, told
    assert "line 1 of stdin is neither +NAME nor -NAME: 'what?'" in " ".join(told.decode().split())
