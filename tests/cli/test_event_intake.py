"""Events to publish: bad ones end the command, or are left out and counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from distributary.cli.event_intake import EventIntake
from distributary.delivery import fingerprint_of
from distributary.errors import InputError
from distributary.files import FlowFilters, read_plan
from distributary.model import Attribute, AttributeKind, Plan, Schema
from tests.delivery.content_plans import save_content

LINES = ({"a": 5, "b": 1}, {"a": "x"}, {"a": 5}, {"a": -1}, {"a": None, "b": 1})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    names = ("a", "b")
    schema = Schema(tuple(Attribute(name, AttributeKind.INTEGER) for name in names))
    flows = {"c-a": ["a > 0"], "c-b": ["b > 0"]}
    save_content(FlowFilters.of(schema, flows, {"ann": ["a > 0"], "bob": ["b > 0"]}), tmp_path)
    lines = "".join(json.dumps(line) + "\n" for line in LINES)
    (tmp_path / "events.jsonl").write_text(lines)
    return tmp_path


class Sent:
    """Stands for a publisher: it takes all, by the plan that it was given last."""

    largest_message = 1_000

    def __init__(self, plan: Plan) -> None:
        self.fingerprint = fingerprint_of(plan)
        self.flows: list[str] = []

    async def publish_together(
        self, make: Callable[[], Iterable[tuple[str, bytes]]], fingerprint: int
    ) -> bool:
        assert fingerprint == self.fingerprint
        self.flows += [flow for flow, _ in make()]
        return True


def publish(run: Path, max_bad: float) -> tuple[EventIntake, list[str]]:
    intake, plan = EventIntake(run / "content", max_bad), read_plan(run / "plan").plan
    intake.prepare(plan)
    sent: Any = Sent(plan)
    asyncio.run(intake.publish(sent, str(run / "events.jsonl"), None))
    return intake, sent.flows


def test_the_first_bad_event_ends_the_command_with_its_row(run: Path) -> None:
    with pytest.raises(InputError, match="row 2: attribute 'a' is 'x', not a whole number"):
        publish(run, 0.0)


def test_bad_events_are_left_out_and_counted_up_to_a_share(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    intake, flows = publish(run, 0.2)
    assert flows == ["c-a", "c-b", "c-a", "c-b"]
    assert intake.document() == {
        "events": 5,
        "published": 3,
        "unwanted": 1,
        "bad": 1,
        "exact": 2,
        "covered": 0,
        "several": 1,
        "combinations": [{"filters": ["a > 0", "b > 0"], "events": 1}],
    }
    intake.print_notes()
    said = " ".join(capsys.readouterr().err.split())
    assert "1 events match no filter" in said
    assert "'a > 0' and 'b > 0'" in said
    assert "row 2" in said
    intake.check()


def test_more_bad_events_than_allowed_are_an_error(run: Path) -> None:
    intake, _ = publish(run, 0.19)
    with pytest.raises(InputError, match=r"1 of 5 events cannot be used, more than 19\.00%"):
        intake.check()
