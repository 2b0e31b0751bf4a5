"""The state of a stream on disk: one small file, replaced atomically, and the files it names.

**Commit.** A batch writes its files into a new folder below `state/`: new rows of the tables, and
rows of older files that it merged (`buckets`). Then one rename replaces `state.json`, which names
all files of the tables. What it does not name does not exist: a batch that ends before its commit
leaves only a folder to remove, and Spark runs it again; a batch that runs again after its commit
finds itself in the file and does nothing. Files that a commit no longer names are removed after
the next one, so that whoever reads the state has time to.

**Settle.** What other programs read is moved out of the batch's folder only after the commit: bad
rows to `quarantine/`, the plan to `plans/` and `plan`, and the line to `drift.jsonl`. Each of these
steps is idempotent, and all are repeated at every start, so a kill between them does no harm.

**Loss of power.** A rename may reach the disk before the contents of the files that it makes valid.
So a batch's files are synced before its commit, with what Spark noted about the batch: otherwise
Spark could give its number to other files, which would be passed over. Spark syncs nothing, and
does not start from a note that is empty; those are removed at the start, as if the power had gone
just before them.

Of the versions in `plans/` the `KEPT_VERSIONS` newest stay, of which the last is the one in force.
An older one is first renamed and then removed, so that nobody reads half of one.

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
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from distributary.errors import DistributaryError, OutputError
from distributary.files import replace_file, replace_folder
from distributary.pipeline.buckets import BucketTable, TableFiles, TableKind
from distributary.pipeline.durable import sync_files

__all__ = ["KEPT_VERSIONS", "Ledger", "LedgerError", "LedgerState", "PlannedAt"]

FORMAT_VERSION, _FORMER = 2, 1
STATE = "state.json"
HISTORY = "drift.jsonl"
KEPT_VERSIONS = 20


@dataclass(frozen=True, slots=True)
class PlannedAt:
    """When the running plan was made or flows were last moved, and what moving them saved.

    `latest` is the latest message used then. `saved` is work per second, `saved_share` its share of
    the work before; None for a plan that was made anew.
    """

    batch: int
    latest: int | None
    saved: float | None = None
    saved_share: float | None = None


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The state after a batch: all that a restart needs to know.

    `tables` holds the files of the state's tables by name, with paths below `state/`. `unserved` is
    the path of the table of pairs that the running plan does not serve, if there are any;
    `released` are the files that the state before this one had. Times are in microseconds since
    1970: the `first` and `latest` message used. `slot_us` is the length of the slots in which
    messages are counted. `version` is that of the running plan (0 if there is none), `reference`
    the excess that drift is measured against, `planned` when flows were last placed by planning and
    what that saved (`PlannedAt`), `base` the fingerprint of the last base that was taken. `history`
    is the length of `drift.jsonl` before this batch's line, `entry`. `former` are the paths of
    tables in the format of former versions, which are converted at the start.
    """

    query: str = ""
    batch: int = -1
    folder: str = ""
    tables: Mapping[str, TableFiles] = field(default_factory=dict)
    unserved: str | None = None
    released: tuple[str, ...] = ()
    former: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    slot_us: int = 0
    first: int | None = None
    latest: int | None = None
    version: int = 0
    reference: float | None = None
    planned: PlannedAt | None = None
    base: str | None = None
    history: int = 0
    entry: Mapping[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> bytes:
        """This batch's line of the history."""
        return (json.dumps(dict(self.entry), ensure_ascii=False) + "\n").encode()

    @property
    def paths(self) -> set[str]:
        """The files and folders below `state/` that this state names."""
        files = {file.path for table in self.tables.values() for file in table.files}
        unserved = set() if self.unserved is None else {self.unserved}
        return files | unserved | set(self.former.values())


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
        self._dead: tuple[str, ...] | None = None
        self._synced: set[Path] = set()  # of the checkpoint

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
            self._remove_empty_notes()
            self._check_checkpoint()
            self._check_files()
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

    @property
    def root(self) -> Path:
        """The folder of the state's files."""
        return self.out / "state"

    def table(self, kind: TableKind) -> BucketTable:
        """A table of the state."""
        return BucketTable(kind, self.root, self.state.tables.get(kind.name, TableFiles()))

    def new_folder(self, batch: int) -> Path:
        """Create an empty folder for a batch's files."""
        folder = self.root / f"{batch:06d}-{uuid.uuid4().hex[:8]}"
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
            history=before.history + (len(before.line) if before.entry else 0),
        )
        self._replace_state(state)
        self.settle()

    def convert(self, tables: Mapping[str, TableFiles]) -> None:
        """Commit the tables of a former version, converted; nothing else changes."""
        self._replace_state(replace(self.state, tables=tables, former={}))
        self._sweep()

    def _replace_state(self, state: LedgerState) -> None:
        before = self.state
        state = replace(state, released=tuple(sorted(before.paths - state.paths)))
        self._step("committing")
        document = _write_document(state)
        self._sync_files(state)
        with replace_file(self.out / STATE) as file:
            file.write(document.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        sync_files([self.out])
        self.state = state
        self._dead = before.released
        self._step("committed")

    def _sync_files(self, state: LedgerState) -> None:
        """Have on disk what a state names anew, what Spark noted, and what was settled before."""
        new = {self.root / path for path in state.paths - self.state.paths}
        if state.folder:
            new.update((self.root / state.folder).rglob("*"))
        noted = {path for path in self.checkpoint.rglob("*") if path.is_file()}
        settled = [self.out / HISTORY, self.out / "quarantine", self.out / "plans"]
        sync_files([*new, self.root, *(noted - self._synced), *settled])
        self._synced = noted

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
                sync_files(new.iterdir())
        self._step("plan in place")
        if state.entry:
            with (out / HISTORY).open("ab") as history:
                history.truncate(state.history)
                history.write(state.line)
        self._step("history in place")
        self._put_old_versions_aside()
        self._sweep()
        self._step("settled")

    def _version_folder(self, number: int) -> Path:
        return self.out / "plans" / f"{number:06d}"

    def _put_old_versions_aside(self) -> None:
        """Leave the newest versions; the others get names of what the next sweep removes."""
        for path in self.out.glob("plans/*"):
            if path.name.isdecimal() and int(path.name) <= self.state.version - KEPT_VERSIONS:
                aside = self.out / f".{path.name}.tmp"
                _remove(aside)
                path.rename(aside)
                self._step("old version aside")

    def _sweep(self) -> None:
        """Remove all files but those of this state and the one before it.

        After a commit these are the files that the state before the last had, and files of the
        batch that it has merged already. At the start all folders are looked through.
        """
        needed = {*self.state.paths, *self.state.released}
        dead = set() if self._dead is None else set(self._dead)
        listed = "*/*" if self._dead is None else f"{self.state.folder or '-'}/*"
        dead |= {path.relative_to(self.root).as_posix() for path in self.root.glob(listed)}
        for path in dead - needed:
            _remove(self.root / path)
        folders = {path.split("/")[0] for path in dead} | {self.state.folder} - {""}
        if self._dead is None:
            folders = {path.name for path in self.root.glob("*")}
        for folder in folders:
            with suppress(OSError):  # other files in it are still needed
                (self.root / folder).rmdir()
        for left in self.out.glob(".*.tmp"):
            _remove(left)

    def _read_state(self) -> LedgerState:
        path = self.out / STATE
        if not path.exists():
            return LedgerState()
        try:
            return _read_document(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise LedgerError(
                self.out,
                f"{STATE} was not written by this version",
                "name another folder for --out",
            ) from None

    def _read_query_id(self) -> str | None:
        path = self.checkpoint / "metadata"
        return json.loads(path.read_text())["id"] if path.exists() else None

    def _remove_empty_notes(self) -> None:
        """Remove what Spark noted and the disk did not keep: of a batch that is not committed.

        That of a committed batch may be missing where Spark notes its end: it runs again, and finds
        itself in the state.
        """
        notes = [path for path in self.checkpoint.rglob("*") if path.is_file()]
        for path in [path for path in notes if not path.stat().st_size]:
            path.unlink(missing_ok=True)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

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

    def _check_files(self) -> None:
        """Check that all files of the state are there; reading them checks the rest."""
        missing = sorted(path for path in self.state.paths if not (self.root / path).exists())
        if missing:
            more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
            raise LedgerError(
                self.out,
                f"state/{missing[0]}{more} is missing, which {STATE} names",
                "restore the folder from a copy, or name another one for --out and start over",
            )


def _write_document(state: LedgerState) -> str:
    """The state as JSON, one field per line."""
    fields = {"format": FORMAT_VERSION, **asdict(state)}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in fields.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


def _read_document(document: dict[str, Any]) -> LedgerState:
    """The state from JSON; a `ValueError` or similar if it is not one."""
    known = document.pop("format")
    if known == _FORMER:
        former = dict(document.pop("tables"))
        document |= {"unserved": former.pop("unserved", None), "former": former}
        document |= {"tables": {}, "released": ()}
        del document["kept"]
    elif known != FORMAT_VERSION:
        raise ValueError(f"format {known}")
    tables = {name: TableFiles.from_document(one) for name, one in document["tables"].items()}
    if document.get("planned") is not None:
        document["planned"] = PlannedAt(**document["planned"])
    return LedgerState(**{**document, "tables": tables, "released": tuple(document["released"])})


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


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
