"""The log of subscriptions: whole lines, whoever else writes, and nothing lost when disks fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.delivery.udp.subscription_log import SubscriptionLog
from distributary.errors import DistributaryError, OutputError

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["subscribe", "unsubscribe", "want"]), st.sets(NAMES, max_size=4)),
    max_size=8,
)


def read_log(path: Path) -> list[dict[str, Any]]:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [json.loads(line) for file in files for line in file.read_text("utf-8").split("\n")[:-1]]


def wanted_by(path: Path) -> set[str]:
    """The flows that a log of one receiver ends with, by the times in it."""
    last = {row["flow"]: row["action"] for row in sorted(read_log(path), key=lambda row: row["ts"])}
    return {flow for flow, action in last.items() if action == "subscribe"}


@given(changes=CHANGES, clock=st.lists(st.integers(0, 1 << 61), min_size=16, max_size=16))
@pytest.mark.parametrize("name", ["log", "log.jsonl"])
def test_the_log_says_what_is_wanted(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    changes: list[tuple[str, set[str]]],
    clock: list[int],
) -> None:
    path = tmp_path_factory.mktemp("logs") / name
    times = iter(clock)
    log = SubscriptionLog(path, "r", pytest.fail, clock=lambda: next(times))
    wanted: set[str] = set()
    for action, flows in changes:
        getattr(log, action)(flows)
        wanted = {"subscribe": wanted | flows, "unsubscribe": wanted - flows, "want": flows}[action]
        assert wanted_by(path) == wanted
    times_written = [row["ts"] for row in read_log(path)]
    assert times_written == sorted(times_written)


def test_lines_of_processes_that_share_a_file_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    writer = (
        "import sys\n"
        "from distributary.delivery.udp.subscription_log import SubscriptionLog\n"
        "log = SubscriptionLog(sys.argv[1], sys.argv[2], sys.exit)\n"
        "for at in range(200): log.subscribe(f'{at} {x} ' + 'x' * 100 for x in range(20))\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", writer, str(path), f"r{at}"]) for at in range(2)
    ]
    assert [process.wait() for process in processes] == [0, 0]
    rows = read_log(path)
    assert len({(row["receiver"], row["flow"]) for row in rows}) == len(rows) == 2 * 200 * 20


def test_a_line_that_was_cut_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"ts": "2026-01-0')
    SubscriptionLog(path, "r", pytest.fail).subscribe(["a"])
    assert [json.loads(line)["flow"] for line in path.read_text().splitlines()[1:]] == ["a"]


def test_what_cannot_be_written_is_reported_and_written_with_the_next_change(
    tmp_path: Path,
) -> None:
    path, faults = tmp_path / "log", list[DistributaryError]()
    log = SubscriptionLog(path, "r", faults.append)
    path.rmdir()
    log.subscribe(["a", "b"])
    log.unsubscribe(["a"])
    assert [type(fault) for fault in faults] == [OutputError] * 2
    path.mkdir()
    log.subscribe(["c"])
    assert [(row["flow"], row["action"]) for row in read_log(path)] == [
        ("b", "subscribe"),
        ("a", "unsubscribe"),
        ("c", "subscribe"),
    ]


def test_a_log_that_cannot_be_made_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "log", tmp_path / "nowhere" / "log.jsonl"):
        with pytest.raises(OutputError, match=os.path.basename(path)):
            SubscriptionLog(path, "r", pytest.fail)
