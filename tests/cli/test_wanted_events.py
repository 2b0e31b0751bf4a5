"""Events by content that changes: what comes before its content waits, up to a limit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from distributary.cli import wanted_events
from distributary.cli.wanted_events import WantedEvents
from distributary.delivery import Message
from distributary.delivery.content import Event, EventSorter
from distributary.errors import InputError
from distributary.files import FlowFilters, read_plan
from distributary.model import Attribute, AttributeKind, Schema
from tests.delivery.content_plans import save_content

SCHEMA = Schema((Attribute("a", AttributeKind.INTEGER),))
TABLES = [
    FlowFilters.of(SCHEMA, {f"c{at}": [f"a > {at}"]}, {"r": [f"a > {at}"]}) for at in range(3)
]


def put(table: FlowFilters, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    save_content(table, folder)


def messages_of(table: FlowFilters, values: list[int]) -> list[Message]:
    events = [Event(at, {"a": value}, str(value).encode()) for at, value in enumerate(values)]
    sent = EventSorter(table).sort(events, pytest.fail)
    return [Message(each.flow, at, each.payload) for at, each in enumerate(sent, 1)]


def found_in(wanted: WantedEvents, messages: list[Message]) -> list[object]:
    return [found["payload"] for message in messages for found in wanted.find(message)]


def test_messages_wait_for_their_content_and_keep_their_order(tmp_path: Path) -> None:
    put(TABLES[0], tmp_path / "run")
    wanted = WantedEvents(tmp_path / "run/content", "r", ())
    asked: list[bool] = []
    wanted.on_unknown = lambda: asked.append(True)
    assert wanted.choose(read_plan(tmp_path / "run/plan").plan) == ("c0",)
    assert found_in(wanted, messages_of(TABLES[0], [1, 2])) == ["1", "2"]
    assert found_in(wanted, messages_of(TABLES[1], [3, 4])) == []
    assert found_in(wanted, messages_of(TABLES[0], [5])) == []  # behind those
    assert (wanted.waiting, asked) == (3, [True])
    put(TABLES[1], tmp_path / "run")
    assert wanted.choose(read_plan(tmp_path / "run/plan").plan) == ("c1",)
    assert [found["payload"] for found in wanted.find_held()] == ["3", "4", "5"]
    assert found_in(wanted, messages_of(TABLES[1], [6])) == ["6"]
    assert wanted.waiting == 0


def test_what_waits_in_vain_is_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wanted_events, "_MOST_MESSAGES", 2)
    put(TABLES[0], tmp_path / "run")
    wanted = WantedEvents(tmp_path / "run/content", "r", ())
    wanted.choose(read_plan(tmp_path / "run/plan").plan)
    strangers = [*messages_of(TABLES[2], [3, 4, 5]), Message("c0", 9, b"no event")]
    known = messages_of(TABLES[0], [1, 2, 3])
    assert found_in(wanted, [*strangers, *known]) == ["1", "2", "3"]
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("are no events of") == 1


def test_content_of_another_plan_is_refused(tmp_path: Path) -> None:
    for at in range(2):
        put(TABLES[at], tmp_path / f"run{at}")
    wanted = WantedEvents(tmp_path / "run0/content", "r", ())
    with pytest.raises(InputError, match="does not belong to the plan"):
        wanted.choose(read_plan(tmp_path / "run1/plan").plan)


def test_payloads_that_are_no_text_are_told_from_events() -> None:
    assert json.loads(messages_of(TABLES[0], [1])[0].payload)["t"] == TABLES[0].digest
