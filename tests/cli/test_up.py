"""What `up` refuses, and its line at the bottom of a terminal."""

from __future__ import annotations

import msgspec
import pytest

from distributary.cli.up import describe_status
from distributary.control.status import (
    Alarm,
    ControlStatus,
    ReceiverStatus,
    ServiceStatus,
    StreamStatus,
    VersionStatus,
    Waste,
)
from tests.cli.conftest import CommandLine

EMPTY = ControlStatus(
    prefix="distributary",
    now=1_000.0,
    service=ServiceStatus("here", 900.0, 0, 0.0),
    mode="auto",
    tolerance=0.5,
    group_limit=8,
    session_limit=32,
    limits="",
    pins={},
    force=None,
    proposal=None,
    waste=Waste(0.0, 0.0, 0.0),
    publishers=[],
    receivers=[],
    stream=StreamStatus("starting"),
    alarms=[],
)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--desks", "0"), "at least one of everything"),
        (("--rate", "0"), "must be numbers above 0"),
        (("--theme", "soon"), "'soon' is not a time"),
        (("--groups", "0"), "--groups"),
        (("--port", "65536"), "--port"),
        (("--approve", "never"), "--approve"),
    ],
)
def test_what_makes_no_sense_is_refused(
    cli: CommandLine, words: tuple[str, ...], says: str
) -> None:
    ran = cli("up", "--simulate", *words)
    assert ran.status == 2
    assert says in " ".join(ran.err.replace("│", " ").split())


def test_the_line_says_how_it_goes() -> None:
    assert describe_status(None) == "the control plane does not answer"
    said = "no plan yet · 0 receivers, 0 publishers · wanted 0/s, thrown away 0/s"
    assert describe_status(EMPTY) == said
    version = VersionStatus(7, "planned", 990.0, "control", "saves", 120, 11, 8, 30)
    receiver = ReceiverStatus(
        "desk-1", True, 999.0, "here", 30, [], 3, Waste(1_500.0, 300.0, 200.0), 0, 0, 0, 0.1
    )
    alarm = Alarm("stream behind", "", 990.0, "rows wait")
    found = msgspec.structs.replace(
        EMPTY,
        force=version,
        receivers=[receiver, msgspec.structs.replace(receiver, name="desk-2", alive=False)],
        waste=Waste(1_500.0, 300.0, 200.0),
        alarms=[alarm],
    )
    said = (
        "plan 7 (planned) · 1 receivers, 0 publishers · wanted 1,500/s, thrown away 500/s (25%) · "
        "1 alarm"
    )
    assert describe_status(found) == said
