"""The state of a stream on disk: one small file, replaced atomically, and the tables it names.

**Commit.** A batch writes all its tables into a new folder below `state/`. Then one rename replaces
`state.json`. What it does not name does not exist: a batch that ends before its commit leaves only
a folder to remove, and Spark runs it again; a batch that runs again after its commit finds itself
in the file and does nothing.

**Settle.** What other programs read is moved out of the batch's folder only after the commit: bad
rows to `quarantine/`, the plan to `plans/` and `plan`, and the line to `drift.jsonl`. Each of these
steps is idempotent, and all are repeated at every start, so a kill between them does no harm.

A lock on the folder admits one process at a time; the system releases it if the process is killed.
"""

from __future__ import annotations

import fcntl
import filecmp
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from distributary.errors import DistributaryError, OutputError
from distributary.files import replace_file, replace_folder

__all__ = ["Ledger", "LedgerError", "LedgerState"]

FORMAT_VERSION = 1
STATE = "state.json"
HISTORY = "drift.jsonl"


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The state after a batch: all that a restart needs to know.

    `tables` maps the names of the state's tables to their paths below `state/`. Times are in
    microseconds since 1970: the `first` and `latest` message used. `slot_us` is the length of the
    slots in which messages are counted. `version` is that of the running plan (0 if there is none),
    `reference` the excess that drift is measured against. `history` is the length of `drift.jsonl`
    before this batch's line, `entry`.
    """

    query: str = ""
    batch: int = -1
    folder: str = ""
    tables: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    counts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    slot_us: int = 0
    first: int | None = None
    latest: int | None = None
    version: int = 0
    reference: float | None = None
    history: int = 0
    entry: Mapping[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> bytes:
        """This batch's line of the history."""
        return (json.dumps(dict(self.entry), ensure_ascii=False) + "\n").encode()

    @property
    def folders(self) -> set[str]:
        """The folders below `state/` that hold this batch's tables."""
        return {self.folder, *(path.split("/")[0] for path in self.tables.values())} - {""}


class LedgerError(DistributaryError):
    """The files in a stream's folder do not belong together, or another stream uses it."""

    def __init__(self, out: Path, reason: str, remedy: str) -> None:
        self.out = out
        super().__init__(f"{out}: {reason}; {remedy}")


class Ledger:
    """The folder of one stream. Use `open`, which locks it and settles the last commit."""

    def __init__(self, out: Path, step: Callable[[str], None] = lambda name: None) -> None:
        self.out = out
        self._step = step
        self.state = LedgerState()

    @contextmanager
    def open(self) -> Iterator[Ledger]:
        """Lock the folder, read its state and settle the last commit."""
        _check_ours(self.out)
        self.out.mkdir(parents=True, exist_ok=True)
        with (self.out / ".lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LedgerError(
                    self.out,
                    "another stream writes here",
                    "end it, or name another folder",
                ) from None
            self.state = self._read_state()
            self._check_checkpoint()
            self.settle()
            yield self

    @property
    def checkpoint(self) -> Path:
        """The folder where Spark records which files belong to which batch."""
        return self.out / "checkpoint"

    @property
    def running_plan(self) -> Path | None:
        """The folder of the plan in force; None if there is none."""
        if not self.state.version:
            return None
        return self._version_folder(self.state.version)

    def table(self, name: str) -> Path | None:
        """The path of a table of the state; None if there is none yet."""
        path = self.state.tables.get(name)
        return None if path is None else self.out / "state" / path

    def new_folder(self, batch: int) -> Path:
        """Create an empty folder for a batch's tables."""
        folder = self.out / "state" / f"{batch:06d}-{uuid.uuid4().hex[:8]}"
        folder.mkdir(parents=True)
        return folder

    def is_running(self, plan: Path) -> bool:
        """Whether a plan has the same tables as the plan in force."""
        running = self.running_plan
        return running is not None and _have_same_files(plan, running, but="plan.json")

    def commit(self, state: LedgerState) -> None:
        """Commit a batch, then settle it."""
        before = self.state
        state = replace(
            state,
            query=self._read_query_id() or "",
            kept=tuple(sorted(before.folders)),
            history=before.history + (len(before.line) if before.entry else 0),
        )
        self._step("committing")
        document = json.dumps({"format": FORMAT_VERSION, **asdict(state)}, indent=2)
        with replace_file(self.out / STATE) as file:
            file.write(document.encode() + b"\n")
        self.state = state
        self._step("committed")
        self.settle()

    def settle(self) -> None:
        """Put what the last commit names in its place; idempotent."""
        state, out = self.state, self.out
        folder = out / "state" / state.folder
        if state.folder:
            _move_into_place(folder / "quarantine", out / "quarantine" / f"batch={state.batch}")
            self._step("quarantine in place")
            _move_into_place(folder / "plan", self._version_folder(state.version))
            self._step("version in place")
        running = self.running_plan
        if running is not None and not _have_same_files(running, out / "plan"):
            with replace_folder(out / "plan", _is_plan, "plan") as new:
                shutil.copytree(running, new, dirs_exist_ok=True)
        self._step("plan in place")
        if state.entry:
            with (out / HISTORY).open("ab") as history:
                history.truncate(state.history)
                history.write(state.line)
        self._step("history in place")
        self._sweep()
        self._step("settled")

    def _version_folder(self, number: int) -> Path:
        return self.out / "plans" / f"{number:06d}"

    def _sweep(self) -> None:
        """Remove all folders but those of this state and the one before it."""
        needed = {*self.state.folders, *self.state.kept}
        for folder in (self.out / "state").glob("*"):
            if folder.name not in needed:
                shutil.rmtree(folder, ignore_errors=True)
        for left in self.out.glob(".*.tmp"):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()

    def _read_state(self) -> LedgerState:
        path = self.out / STATE
        if not path.exists():
            return LedgerState()
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            known = document.pop("format") == FORMAT_VERSION
            state = LedgerState(**{**document, "kept": tuple(document["kept"])})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            known = False
        if not known:
            raise LedgerError(
                self.out,
                f"{STATE} was not written by this version",
                "name another folder for --out",
            )
        return state

    def _read_query_id(self) -> str | None:
        path = self.checkpoint / "metadata"
        return json.loads(path.read_text())["id"] if path.exists() else None

    def _check_checkpoint(self) -> None:
        """Check that Spark's records and ours are of one stream: no file is lost or read twice."""
        commits = self.checkpoint / "commits"
        done = [int(path.name) for path in commits.glob("*") if path.name.isdigit()]
        ours = self.state.batch < 0 or self._read_query_id() == self.state.query
        if not ours or max(done, default=-1) > self.state.batch:
            raise LedgerError(
                self.out,
                f"{STATE} and checkpoint are not of one stream",
                "restore both, or name another folder for --out and start over",
            )


def _check_ours(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise OutputError("is a file", path=str(out), remedy="name a folder for the stream")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not any((out / name).exists() for name in (STATE, "checkpoint", ".lock")):
        raise OutputError(
            "is a folder with other things in it, not a stream's",
            path=str(out),
            remedy="name a new or empty folder",
        )


def _move_into_place(made: Path, place: Path) -> None:
    if made.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        made.rename(place)


def _have_same_files(one: Path, other: Path, but: str = "") -> bool:
    """Whether two folders hold the same files, byte by byte, except for the name `but`."""
    if not (one.is_dir() and other.is_dir()):
        return False
    names = {name for name in os.listdir(one) if name != but}
    if names != {name for name in os.listdir(other) if name != but}:
        return False
    same, _, _ = filecmp.cmpfiles(one, other, sorted(names), shallow=False)
    return len(same) == len(names)


def _is_plan(folder: Path) -> bool:
    return (folder / "plan.json").is_file()
