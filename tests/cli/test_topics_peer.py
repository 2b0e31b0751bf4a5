"""`topics peer`, and `--peer` of the other commands: wrong usage, in one line."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import pytest

from distributary.cli import topics_peer
from tests.cli.conftest import CommandLine

PEER = ("topics", "peer", "--listen", "127.0.0.1:0", "--state", "state")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("topics", "peer", "--listen", "nowhere", "--state", "s"), "is not HOST:PORT"),
        (("topics", "peer", "--listen", "0.0.0.0:0", "--state", "s"), "say with --advertise"),
        ((*PEER, "--join", "nowhere"), "is not HOST:PORT"),
        ((*PEER, "--copies", "10"), "Input should be less than or equal to 9"),
        ((*PEER, "--notify-price", "-1"), "Input should be greater than or equal to 0"),
        ((*PEER, "--tls-ca", "ca.pem"), "a peer with TLS needs its certificate"),
        (("topics", "create", "t", "--peer", "nowhere"), "is not HOST:PORT"),
        (("topics", "create", "t", "--peer", ""), "give the address of at least one peer"),
        (
            ("topics", "create", "t", "--peer", "127.0.0.1:1", "--nats", "nats://127.0.0.1"),
            "give one of --peer, --nats and --state",
        ),
    ],
)
def test_wrong_usage_is_named(words: tuple[str, ...], says: str, cli: CommandLine) -> None:
    ran = cli(*words)
    assert ran.status == 2
    assert says in " ".join(ran.err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "notify", "associate"),
    [((), 1.0, 10.0), (("--notify-price", "0", "--associate-price", "2.5"), 0.0, 25.0)],
)
def test_the_prices_of_channels_are_those_given_or_the_papers(
    words: tuple[str, ...],
    notify: float,
    associate: float,
    cli: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: list[partial[Any]] = []
    monkeypatch.setattr(topics_peer, "run_until_signal", served.append)
    assert cli(*PEER, *words).status == 0
    prices = served[0].args[0].policy.prices
    assert (prices.notify, prices.associate(10)) == (notify, associate)


def test_an_address_that_is_taken_is_one_line(cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ("topics", "peer", "--listen", address, "--state", "state")
        ran = cli(*words)
    assert ran.status == 1
    assert ran.err.count("\n") == 1
    assert "cannot be listened on (address already in use)" in ran.err


def test_a_peer_that_does_not_answer_is_one_line(cli: CommandLine) -> None:
    words = ("topics", "create", "t", "--peer", "127.0.0.1:1", "--timeout", "300ms")
    ran = cli(*words)
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert "127.0.0.1:1: no peer answers (connection refused)" in ran.err
