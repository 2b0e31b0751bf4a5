"""The Grafana dashboard asks for what the exporters serve, and for nothing else."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from distributary.control.nats.metrics import serve_metrics as serve_control_metrics
from distributary.delivery import LatencyStatistics
from distributary.delivery.udp import PublisherStatistics, ReceiverStatistics
from distributary.delivery.udp.statistics import SeatStatistics, serve_metrics
from tests.control.nats.fake_service import publisher_statistics, receiver_statistics
from tests.dashboard.fake import FakeControl

BOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs/grafana/distributary.json").read_text()
)
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
NAME = re.compile(r"\bdistributary_\w+")
OVER_TIME = re.compile(r"\b(?:rate|increase)\((distributary_\w+)")


@pytest.fixture(scope="module")
def served() -> dict[str, Metric]:
    """All metrics of a control plane, a publisher and a receiver, by the names of their samples."""
    status = asyncio.run(FakeControl().status())
    seat = SeatStatistics(True, 1.0, 0, 1, 1)
    latency = LatencyStatistics("east", *(1 for _ in LatencyStatistics.__slots__[1:]))
    pages: list[Callable[[], Any]] = [
        lambda: serve_control_metrics(lambda: status, 0),
        lambda: serve_metrics(lambda: _replace(publisher_statistics(), control=seat), 0),
        lambda: serve_metrics(
            lambda: _replace(receiver_statistics(), control=seat, latencies=(latency,)), 0
        ),
    ]
    return {name: metric for page in pages for name, metric in _read(page)}


def _read(serve: Callable[[], Any]) -> Iterator[tuple[str, Metric]]:
    with serve() as port, urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
        for metric in text_string_to_metric_families(page.read().decode()):
            for sample in metric.samples:
                yield sample.name, metric


def _replace(
    found: PublisherStatistics | ReceiverStatistics, **values: Any
) -> PublisherStatistics | ReceiverStatistics:
    return replace(found, **values)


def test_every_metric_that_a_panel_asks_for_is_served(served: dict[str, Metric]) -> None:
    asked = set(NAME.findall(json.dumps(BOARD)))
    assert sorted(asked - served.keys()) == []
    assert len(asked) > 30


def test_every_number_of_the_control_plane_has_a_panel(served: dict[str, Metric]) -> None:
    shown = {name for expression in EXPRESSIONS for name in NAME.findall(expression)}
    own = {
        name
        for name in served
        if name.startswith("distributary_control_") and not name.endswith("_created")
    }
    assert sorted(own - shown - {"distributary_control_published_rate"}) == []


def test_only_counters_are_taken_over_time(served: dict[str, Metric]) -> None:
    for expression in EXPRESSIONS:
        over_time = set(OVER_TIME.findall(expression))
        for name in NAME.findall(expression):
            if name in over_time:
                assert served[name].type == "counter", expression
            elif "missing_messages" not in name:  # shown as it stands: any of it is too much
                assert served[name].type == "gauge", expression


def test_labels_that_a_panel_asks_for_are_there(served: dict[str, Metric]) -> None:
    of_prometheus = {"job", "instance"}
    for expression, legend in (
        (target["expr"], target["legendFormat"]) for panel in PANELS for target in panel["targets"]
    ):
        names = NAME.findall(expression)
        labels = {label for name in names for s in served[name].samples for label in s.labels}
        asked = set(re.findall(r"[{,](\w+)=", expression)) | set(re.findall(r"{{(\w+)}}", legend))
        asked |= {
            label.strip()
            for by in re.findall(r"by \(([^)]*)\)", expression)
            for label in by.split(",")
        }
        assert asked - labels - of_prometheus == set(), expression


def test_parts_that_a_panel_asks_for_are_there(served: dict[str, Metric]) -> None:
    for expression in EXPRESSIONS:
        for name, part in re.findall(
            r"(distributary_\w+){[^}]*\b(?:part|state)=~?\"([^\"]+)\"", expression
        ):
            found = {value for s in served[name].samples for value in s.labels.values()}
            assert any(re.fullmatch(part, value) for value in found), expression


def test_panels_have_numbers_of_their_own_and_lie_beside_each_other() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))
    fields: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        own = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not own & fields, panel["title"]
        fields |= own


def test_the_prometheus_is_the_readers_choice() -> None:
    sources = {panel["datasource"]["uid"] for panel in PANELS}
    assert sources == {"${datasource}"}
    assert {each["name"] for each in BOARD["templating"]["list"]} == {
        "datasource",
        "control",
        "members",
    }
