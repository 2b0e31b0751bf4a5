"""The status of a control plane as Prometheus reads it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from distributary.control.nats.metrics import serve_metrics
from distributary.control.status import (
    Alarm,
    ControlStatus,
    PublisherStatus,
    ReceiverStatus,
    ServiceStatus,
    StreamStatus,
    VersionStatus,
    Waste,
)

STATUS = ControlStatus(
    prefix="p",
    now=1_000.0,
    service=ServiceStatus("here", 900.0, 2, 7.5),
    mode="auto",
    tolerance=0.5,
    group_limit=4,
    session_limit=8,
    limits="",
    pins={},
    force=VersionStatus(
        *(9, "planned", 950.0, "control", "", 30, 8, 4, 3), predicted=Waste(10.0, 5.0, 1.0)
    ),
    predicted=Waste(10.0, 2.0, 1.0),
    proposal=None,
    waste=Waste(11.0, 3.0, 2.0),
    publishers=[
        PublisherStatus("a", True, 999.0, "", None, 40.0, 5, 9, 0),
        PublisherStatus("b", False, 900.0, "", 2, 0.5, 1, 7, 2),
    ],
    receivers=[
        ReceiverStatus("r", True, 999.0, "", 3, ["x", "y"], 2, Waste(11.0, 3.0, 2.0), 1, 4, 6, 0.1)
    ],
    stream=StreamStatus("running", 3, batch=12, rows={"subscriptions": 8}, quarantined={"no": 1}),
    alarms=[Alarm("receiver gone", "r", 0.0, ""), Alarm("receiver gone", "s", 0.0, "")],
)


def read(status: ControlStatus | None) -> dict[tuple[str, str], float]:
    """All samples that are served, by name and labels."""
    with serve_metrics(lambda: status, 0) as port, urlopen(f"http://127.0.0.1:{port}") as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    return {
        (sample.name.removeprefix("distributary_control_"), ",".join(sample.labels.values())): (
            sample.value
        )
        for family in families
        for sample in family.samples
    }


def test_all_numbers_of_a_status_are_metrics() -> None:
    found = read(STATUS)
    expected = {
        ("serving", ""): 1,
        ("version", ""): 9,
        ("flows", ""): 30,
        ("predicted_rate", "dropped_first"): 2,
        ("measured_rate", "wanted"): 11,
        ("measured_rate", "dropped_second"): 2,
        ("stand_bys", ""): 2,
        ("cpu_seconds_total", ""): 7.5,
        ("members", "publisher,alive"): 1,
        ("members", "publisher,gone"): 1,
        ("members", "receiver,alive"): 1,
        ("published_rate", ""): 40.5,
        ("versions_behind", ""): 2,
        ("unserved", ""): 2,
        ("missing", ""): 4,
        ("stream_state", "running"): 1,
        ("stream_state", "off"): 0,
        ("stream_restarts_total", ""): 3,
        ("stream_rows", "subscriptions"): 8,
        ("stream_quarantined", "no"): 1,
        ("alarms", "receiver gone"): 2,
    }
    assert {key: found.get(key) for key in expected} == expected


def test_a_service_that_stands_by_says_only_that() -> None:
    assert read(None) == {("serving", ""): 0}


def test_every_metric_of_the_dashboard_file_exists() -> None:
    folder = Path(__file__).parents[3] / "docs/grafana"
    served = {name for name, _ in read(STATUS)}
    for path in folder.glob("*.json"):
        text = json.dumps(json.loads(path.read_text()))
        asked = set(re.findall(r"distributary_control_(\w+)", text))
        assert asked <= served | {"stream_batch_seconds", "stream_drift", "stream_excess"}, path
