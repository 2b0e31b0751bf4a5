"""What must hold of versions that were rolled back by themselves, by the log of changes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from distributary.control.history import dropped
from distributary.control.status import AuditEntry
from distributary.control.versions import MOVING
from tests.control.mirror import count_moved
from tests.control.plans import read_places
from tests.control.store import Accepted

_BACK = re.compile(r"back to version (\d+): under (\d+)(?: to (\d+))?, ")
_TOLERATED = re.compile(r"up to ([\d,]+\.\d) are tolerated")
_ROUNDED = 0.1  # what the log says in words


def check_rollbacks(audit: Sequence[AuditEntry], accepted: Sequence[Accepted]) -> Counter[str]:
    """Check each of them, and that each version that turned out worse was rolled back or kept."""
    tally: Counter[str] = Counter()
    told = [entry for entry in audit if entry.what == "in force"]
    plans = {each.decision.version: each for each in accepted}
    ended = [entry.version or 0 for entry in audit if entry.what == "kept"]
    tally["kept"] = len(ended)
    for entry in told:
        if entry.who == "control" and entry.kind == "rolled back":
            back, first, last = _read_versions(entry.why)
            _check_rollback(entry, told, plans, back, first)
            ended.append(last)
            tally["rolled back by itself"] += 1
            tally["by a successor"] += plans[entry.version or 0].by != plans[last].by
            tally["together"] += first < last
    assert len(set(ended)) == len(ended), f"one of {ended} was ended twice"
    assert set(_list_worse(audit, _ROUNDED)) <= {*ended, *_list_replaced(told)}
    # A service may be killed before it writes down that it has judged what it rolled back.
    judged = {entry.version for entry in audit if entry.what == "judged"}
    assert judged.intersection(ended) <= set(_list_worse(audit, -_ROUNDED))
    _check_pauses(audit)
    return tally


def _read_versions(why: str) -> tuple[int, int, int]:
    """The version that is gone back to, and the first and the last that turned out worse."""
    found = _BACK.match(why)
    assert found is not None, why
    back, first, last = found.groups()
    return int(back), int(first), int(last or first)


def _check_rollback(
    entry: AuditEntry,
    told: Sequence[AuditEntry],
    plans: Mapping[int, Accepted],
    back: int,
    first: int,
) -> None:
    """All that was planned since is undone, and every flow is where it was before."""
    number = entry.version or 0
    assert back == first - 1
    undone = [each.kind for each in told[first - 1 : number - 1] if each.kind in MOVING]
    assert undone, f"version {number} undoes nothing"
    assert set(undone) == {"planned"}, f"version {number} undoes {undone}"
    assert entry.moves
    settings = plans[number].settings
    if back in plans and not (settings.limits or settings.pins):
        before, after = (read_places(plans[at].plan) for at in (back, number))
        assert not count_moved(before, after), f"version {number} is not back at {back}"


def _list_replaced(told: Sequence[AuditEntry]) -> Iterator[int]:
    """The planned versions that an operator replaced by another one that moves flows."""
    planned: list[int] = []
    for entry in told:
        if entry.kind == "planned":
            planned.append(entry.version or 0)
        elif entry.kind in MOVING:
            if entry.who != "control":
                yield from planned
            planned.clear()


def _list_worse(audit: Sequence[AuditEntry], margin: float) -> Iterator[int]:
    """The planned versions that dropped more than was tolerated by a margin."""
    for entry in audit:
        if entry.what == "judged" and entry.kind == "planned" and entry.measured is not None:
            found = _TOLERATED.search(entry.why)
            assert found is not None, entry.why
            if dropped(entry.measured) > float(found.group(1).replace(",", "")) + margin:
                yield entry.version or 0


def _check_pauses(audit: Sequence[AuditEntry]) -> None:
    """No proposal comes into force by itself after a roll-back, until somebody sets the mode."""
    rolled = 0
    for entry in audit:
        if entry.what == "mode":
            rolled = 0
        elif entry.what == "in force" and entry.kind == "rolled back":
            rolled = entry.version or 0
        elif entry.what == "in force" and entry.kind == "planned" and entry.who == "control":
            assert not rolled, f"version {entry.version} did not wait after {rolled}"
