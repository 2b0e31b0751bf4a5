"""Everything distributary raises on purpose.

    DistributaryError
    ├── InputError          a file, row or value cannot be used
    │   ├── MissingRateError    a wanted flow has no rate
    │   └── BadTablesError      rows of tables cannot be used                     (files.bad_rows)
    ├── PlanError           a plan does not serve every receiver
    ├── LimitError          a plan breaks limits of its network
    ├── InfeasibleError     no plan meets the constraints, or none was found
    ├── LiveError           a live service or connection fails     (delivery.errors, topics.errors)
    │   └── StateError          the state of a service cannot be read or written
    ├── FullError           a sender's queue is full                              (delivery.sender)
    ├── OutputError         results cannot be written
    ├── MissingExtraError   a package of an optional part is not installed
    ├── BadRowsError        a log has more bad rows than the caller allows        (pipeline.ingest)
    ├── CountError          the rows of a log do not add up                       (pipeline.ingest)
    ├── LedgerError         the files of a stream do not belong together          (pipeline.ledger)
    ├── JavaError           Spark finds no Java that it can run on                (pipeline.spark)
    └── SparkStartError     Spark does not start                                  (pipeline.spark)

Each message says what happened, with which value, and what to do next; the same facts are
attributes. A caller's own mistake (a negative number of groups, an unknown algorithm) stays a plain
`ValueError`, raised before any work starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

__all__ = [
    "DistributaryError",
    "InfeasibleError",
    "InputError",
    "LimitError",
    "LiveError",
    "MissingExtraError",
    "MissingRateError",
    "OutputError",
    "PlanError",
    "StateError",
]


class DistributaryError(Exception):
    """The root of all errors that distributary raises on purpose."""


class InputError(DistributaryError):
    """A file, row or value cannot be used.

    `row` counts from 1 without a CSV file's header line; it is None if the whole file is at fault.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: str | None = None,
        row: int | None = None,
        value: object = None,
        remedy: str = "",
    ) -> None:
        self.reason = reason
        self.path = path
        self.row = row
        self.value = value
        self.remedy = remedy
        where = "" if path is None else f"{path}: " if row is None else f"{path}, row {row}: "
        super().__init__(f"{where}{reason}" + (f"; {remedy}" if remedy else ""))


class MissingRateError(InputError):
    """Flows that somebody wants have no rate; `flows` holds their names."""

    def __init__(self, flows: tuple[str, ...], *, path: str | None = None) -> None:
        self.flows = flows
        more = f" (and {len(flows) - 1:,} more)" if len(flows) > 1 else ""
        super().__init__(
            f"flow {flows[0]!r} has interest but no rate{more}",
            path=path,
            value=flows[0],
            remedy="add a row for each to the rates, take them out of the interest, or give them "
            "a rate with --floor",
        )


class PlanError(DistributaryError):
    """The plan at `path` is not valid; `problems` says in what ways."""

    def __init__(self, problems: tuple[str, ...], *, path: str) -> None:
        self.problems = problems
        self.path = path
        super().__init__(f"{path}: the plan is not valid: {'; '.join(problems)}; plan again")


class LimitError(DistributaryError):
    """The plan at `path` breaks limits of its network; `broken` says which."""

    def __init__(self, broken: tuple[str, ...], *, path: str) -> None:
        self.broken = broken
        self.path = path
        more = f" (and {len(broken) - 1:,} more)" if len(broken) > 1 else ""
        super().__init__(
            f"{path}: the plan breaks a limit: {broken[0]}{more}; plan again with these limits"
        )


class InfeasibleError(DistributaryError):
    """No plan meets the constraints; `proven` says whether that is certain or none was found."""

    def __init__(self, reason: str, *, proven: bool, remedy: str = "") -> None:
        self.reason = reason
        self.proven = proven
        self.remedy = remedy
        what = "infeasible" if proven else "no plan found"
        super().__init__(f"{what}: {reason}" + (f"; {remedy}" if remedy else ""))


class OutputError(DistributaryError):
    """Results cannot be written to `path`."""

    def __init__(self, reason: str, *, path: str, remedy: str = "") -> None:
        self.reason = reason
        self.path = path
        self.remedy = remedy
        super().__init__(f"{path}: {reason}" + (f"; {remedy}" if remedy else ""))


class MissingExtraError(DistributaryError, ImportError):
    """A command or a module needs `package`, which the extra `extra` installs."""

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(
            f"this needs the package {package}, which is not installed; "
            f"run: pip install 'distributary[{extra}]'"
        )


class LiveError(DistributaryError):
    """The root of errors of live services and connections."""


class StateError(LiveError):
    """The state at `path` cannot be used."""

    def __init__(self, path: str, reason: str, remedy: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}; {remedy}")

    @classmethod
    def from_os(cls, path: Path, error: OSError, *, doing: str = "written") -> Self:
        """Make the error for an `OSError` at a path."""
        reason = (error.strerror or str(error)).lower()
        return cls(
            str(path), f"cannot be {doing}: {reason}", "check the path, or choose another folder"
        )
