"""The command lines of the parts: those that one types to run a system by hand."""

from __future__ import annotations

from collections.abc import Iterable

from distributary.system.settings import SystemSettings

__all__ = ["MEMBER_READY", "make_control", "make_dashboard", "make_desk", "make_exchange"]

MEMBER_READY = "metrics at "  # how the line begins that a member says once it has joined

_ON_THIS_MACHINE = 0  # the time to live of packets that do not leave it
_LIKE_ALL_MEMBERS = ("--interface", "lo", "--metrics", "0")
# Spark would take half of the memory, and start as many tasks as on a machine of its own.
_SMALL_SPARK = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def make_control(settings: SystemSettings) -> list[str]:
    """`control serve`, with its embedded NATS server and its stream."""
    command = [
        *(*settings.program, "control", "serve", "--log-json", "--state", str(settings.state)),
        *("--groups", str(settings.groups), "--sessions", str(settings.sessions)),
        *("--approve", settings.approve, "--spark", settings.spark),
    ]
    command += ["--ttl", str(_ON_THIS_MACHINE), "--port", str(settings.multicast_port)]
    if settings.spark != "off":
        command += [word for pair in _SMALL_SPARK.items() for word in ("--conf", "=".join(pair))]
    if settings.floor is not None:
        # Themes move many of the few symbols at a time.
        command += ["--max-moves", str(settings.floor.symbols // 4)]
    return command


def make_dashboard(settings: SystemSettings) -> list[str]:
    """`dashboard`, on the loopback."""
    return [
        *(*settings.program, "dashboard", "--control", str(settings.state)),
        *("--port", str(settings.port), "--token-file", str(settings.token_file)),
    ]


def make_desk(settings: SystemSettings, name: str, flows: Iterable[str]) -> list[str]:
    """`receive`, which takes changes of its interest on stdin."""
    command = [*settings.program, "receive", "--control", str(settings.state), "--as", name]
    return [*command, *_LIKE_ALL_MEMBERS, *_list_flows(flows)]


def make_exchange(settings: SystemSettings, name: str, flows: Iterable[str]) -> list[str]:
    """`publish`, which takes messages on stdin."""
    command = [*settings.program, "publish", "--control", str(settings.state), "--as", name]
    return [*command, *_LIKE_ALL_MEMBERS, "--from", "-", *_list_flows(flows)]


def _list_flows(flows: Iterable[str]) -> list[str]:
    return [word for flow in flows for word in ("--flow", flow)]
