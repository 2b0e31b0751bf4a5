"""A stream's folder on its own: a writer that is stopped at any step, without Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from distributary.pipeline import ledger as ledger_module
from distributary.pipeline.buckets import BucketFile, TableFiles
from distributary.pipeline.ledger import Ledger, LedgerError, LedgerState

from .power import lose_power, note_syncs

BATCHES = 4


class StoppedError(Exception):
    pass


def write_batches(out: Path, step: Callable[[str], None] = lambda name: None) -> LedgerState:
    """Take in what batches are missing: tables, bad rows and a new plan in every other one."""
    with Ledger(out, step).open() as ledger:
        ledger.checkpoint.mkdir(exist_ok=True)
        (ledger.checkpoint / "metadata").write_text('{"id": "one stream"}')
        (ledger.checkpoint / "offsets").mkdir(exist_ok=True)
        for number in range(ledger.state.batch + 1, BATCHES):
            (ledger.checkpoint / "offsets" / str(number)).write_text(f"files of batch {number}")
            folder = ledger.new_folder(number)
            version = number // 2 + 1
            made = ["quarantine/part", "plan/plan.json"][: 2 - number % 2]
            for name in made:
                (folder / name).parent.mkdir()
                (folder / name).write_text(f"{name} of batch {number}")
            # Two files a batch: one lasts, the other is gone with the next batch.
            new = [BucketFile(f"{folder.name}/{kind}", number, 0, 9, 1) for kind in ("new", "old")]
            for file in new:
                (ledger.root / file.path).write_text(f"{file.path[-3:]} of batch {number}")
            known = ledger.state.tables.get("actions", TableFiles()).files
            lasting = [file for file in known if file.path.endswith("old")]
            ledger.commit(
                LedgerState(
                    batch=number,
                    folder=folder.name,
                    tables={"actions": TableFiles((*lasting, *new))},
                    version=version,
                    entry={"batch": number, "version": version},
                )
            )
        return ledger.state


def everything(out: Path, state: LedgerState) -> dict[str, object]:
    """All that others read, and the last table; folders below `state` have names by chance."""
    read = [path for path in sorted(out.rglob("*")) if path.is_file() and path.stat().st_size]
    outside = {str(path.relative_to(out)): path.read_text() for path in read}
    kept = {name: text for name, text in outside.items() if not name.startswith("state")}
    return kept | {
        "table": [
            (out / "state" / file.path).read_text() for file in state.tables["actions"].files
        ],
        "batch": (state.batch, state.version, state.history),
    }


def steps_of(out: Path) -> list[str]:
    steps: list[str] = []
    write_batches(out, steps.append)
    return steps


def stop_at(count: int) -> Callable[[str], None]:
    left = count

    def step(name: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise StoppedError(name)

    return step


def test_a_writer_stopped_at_any_step_ends_as_one_that_was_not(tmp_path: Path) -> None:
    steps = steps_of(tmp_path / "whole")
    state = write_batches(tmp_path / "whole")
    expected = everything(tmp_path / "whole", state)
    assert len(expected) > BATCHES
    for count in range(1, len(steps) + 1):
        out = tmp_path / f"stopped {count}"
        with pytest.raises(StoppedError):
            write_batches(out, stop_at(count))
        for again in range(1, 4):  # and again, while it puts in place what it has committed
            with pytest.raises(StoppedError):
                write_batches(out, stop_at(again))
        state = write_batches(out)
        assert everything(out, state) == expected, (count, steps[count - 1])
        assert not list(out.glob(".*.tmp"))
        root = out / "state"
        left = {path.relative_to(root).as_posix() for path in root.glob("*/*")}
        assert left == {*state.paths, *state.released}
        assert all(any(folder.iterdir()) for folder in root.iterdir())


def test_a_loss_of_power_at_any_step_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = steps_of(tmp_path / "whole")
    expected = everything(tmp_path / "whole", write_batches(tmp_path / "whole"))
    synced = note_syncs(monkeypatch)
    for count in range(1, len(steps) + 1):
        out = tmp_path / f"lost at {count}"
        synced.clear()
        with pytest.raises(StoppedError):
            write_batches(out, stop_at(count))
        lose_power(out, synced)
        committed = out / "state.json"
        if committed.exists():
            batch = json.loads(committed.read_text())["batch"]
            noted = out / "checkpoint" / "offsets" / str(batch)
            assert noted.read_text() == f"files of batch {batch}"
        state = write_batches(out)
        assert everything(out, state) == expected, (count, steps[count - 1])


def test_only_the_newest_versions_are_kept_wherever_the_writer_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_batches(tmp_path / "whole")
    newest = tmp_path / "whole" / "plans" / "000002"
    expected = {path.name: path.read_text() for path in newest.iterdir()}
    monkeypatch.setattr(ledger_module, "KEPT_VERSIONS", 1)
    steps = steps_of(tmp_path / "pruned")
    assert "old version aside" in steps
    for count in range(1, len(steps) + 1):
        out = tmp_path / f"stopped {count}"
        with pytest.raises(StoppedError):
            write_batches(out, stop_at(count))
        for version in out.glob("plans/*"):  # no reader finds half of one
            assert [path.name for path in version.iterdir()] == ["plan.json"]
        (out / "plans" / "notes").mkdir(parents=True, exist_ok=True)
        write_batches(out)
        assert sorted(path.name for path in out.glob("plans/*")) == ["000002", "notes"]
        kept = out / "plans" / "000002"
        assert {path.name: path.read_text() for path in kept.iterdir()} == expected
        assert not list(out.glob(".*.tmp"))


def test_a_stream_with_many_versions_keeps_the_default_number(tmp_path: Path) -> None:
    state = write_batches(tmp_path)
    for number in range(50):
        (tmp_path / "plans" / f"{number:06d}").mkdir(exist_ok=True)
    with Ledger(tmp_path).open() as opened:
        opened.commit(replace(state, version=49, entry={}))
    kept = sorted(int(path.name) for path in (tmp_path / "plans").iterdir())
    assert kept == list(range(50 - ledger_module.KEPT_VERSIONS, 50))


def test_every_line_of_the_history_is_there_once(tmp_path: Path) -> None:
    write_batches(tmp_path / "out")
    lines = (tmp_path / "out" / "drift.jsonl").read_text().splitlines()
    assert [json.loads(line)["batch"] for line in lines] == list(range(BATCHES))


def test_a_missing_file_of_the_state_is_named(tmp_path: Path) -> None:
    state = write_batches(tmp_path / "out")
    lost = sorted(state.paths)[0]
    (tmp_path / "out" / "state" / lost).unlink()
    before = (tmp_path / "out" / "state.json").read_bytes()
    with pytest.raises(LedgerError, match=f"state/{re.escape(lost)} is missing"):
        write_batches(tmp_path / "out")
    assert (tmp_path / "out" / "state.json").read_bytes() == before
