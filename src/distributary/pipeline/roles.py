"""Which columns of a log are the time, the receiver, the flow and so on, and why.

Names decide first, as far as the values allow. What only the values suggest, or what two columns
could be, is a guess and says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from distributary.errors import InputError
from distributary.pipeline.column_names import DOCUMENTED, FAINT, HINTED, NAMED, score_name
from distributary.pipeline.looks import (
    ActionWords,
    TimeLook,
    find_action_words,
    find_times,
    list_words,
    measure_whole,
    names_weekdays,
)
from distributary.pipeline.profiles import ColumnProfile
from distributary.pipeline.shapes import LOG_COLUMNS, LogShape

__all__ = ["LogKind", "Role", "Roles", "find_kind", "find_roles"]

LogKind = Literal["subscriptions", "publications", "filters"]


@dataclass(frozen=True, slots=True)
class Role:
    """A column of ours in a log: the path there ("" if the log has none), and why.

    `doubt` says what was guessed; it is empty if nothing was.
    """

    column: str
    path: str
    why: str
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns of a log of one kind, and how its times and actions are written."""

    kind: LogKind
    columns: Mapping[str, Role]
    times: TimeLook | None = None
    words: ActionWords | None = None
    doubts: tuple[str, ...] = ()

    def make_shape(self, given: LogShape) -> LogShape:
        """The shape that differs from the documented one only where it must; `given` wins."""
        columns = {
            name: role.path for name, role in self.columns.items() if role.path != name
        } | dict(given.columns)
        shape = replace(given, columns=columns)
        told = given.time_format is not None or given.time_unit != "auto"
        if self.times is not None and self.times.pattern and not told:
            shape = replace(shape, time_format=self.times.pattern)
        default = LogShape()
        untold = (given.subscribe, given.unsubscribe) == (default.subscribe, default.unsubscribe)
        if self.words is None or not untold:
            return shape
        known = {"subscribe": self.words.subscribe, "unsubscribe": self.words.unsubscribe}
        if set(known["subscribe"]) - set(default.subscribe):
            shape = replace(shape, subscribe=known["subscribe"])
        if set(known["unsubscribe"]) - set(default.unsubscribe):
            shape = replace(shape, unsubscribe=known["unsubscribe"])
        return shape


def find_kind(
    columns: Sequence[ColumnProfile], given: Mapping[str, str]
) -> tuple[LogKind | Literal["both"], str]:
    """What kind of log these columns make, and why; "both": messages that have their receivers.

    `given` are paths of columns, as far as the log has them.
    """
    found = _Search(columns, {})
    named = {name: path for name, path in given.items() if any(c.path == path for c in columns)}
    if "action" in named:
        return "subscriptions", f"{named['action']!r} has the actions"
    if named.keys() >= {"ts", "flow"} and "receiver" not in named:
        return "publications", "it has times and flows, as --column says"
    if found.find_filter() is not None and found.find_named("receiver") is not None:
        return "filters", "it has receivers and conditions"
    action = found.find_action()
    if action is not None:
        return "subscriptions", f"{action[0].path!r} has the actions {list_words(action[0].values)}"
    times = found.find_time()
    receiver, flow = (
        next((one for one in columns if one.path == named.get(role)), found.find_named(role))
        for role in ("receiver", "flow")
    )
    if times is None and (receiver is not None or flow is None):
        return "subscriptions", "it has no times: each row is taken as who wants what"
    if receiver is None or flow is None:
        return "publications", "it has times, and no actions of receivers"
    return "both", f"each row has a time, {receiver.path!r} and {flow.path!r}, but no action"


def find_roles(
    path: str, kind: LogKind, columns: Sequence[ColumnProfile], given: LogShape
) -> Roles:
    """Find the columns of a log of this kind; those of `given` are settled."""
    search = _Search(columns, {name: given.path_of(name) for name in given.columns})
    if kind == "filters":
        search.take("filter", search.find_filter(), "its values are conditions")
        search.take_named(path, "receiver")
        return search.make_roles(kind)
    _take_times(search, path, kind, given)
    if kind == "subscriptions":
        _take_actions(search)
        search.take_named(path, "receiver")
        search.take_named(path, "flow")
    else:
        search.take_named(path, "flow")
        _take_count(search)
        _take_size(search)
        _take_id(search)
    return search.make_roles(kind)


def _take_times(search: _Search, path: str, kind: LogKind, given: LogShape) -> None:
    if "ts" in search.given:
        settled = search.settled("ts")
        search.times = None if settled is None else find_times(settled)
        return
    worded = None if given.time_format is None else search.find_worded_time(given.time_format)
    found = worded or search.find_time()
    if found is not None:
        column, times = found
        search.times = times
        search.take("ts", column, times.describe())
        return
    if kind == "subscriptions":
        search.leave_out("ts", "no column holds times: subscriptions stand from the beginning")
        return
    weekday = next((one for one in search.columns if names_weekdays(one)), None)
    if weekday is not None:
        raise InputError(
            f"the times in {weekday.path!r} begin with names of days, such as {weekday.example!r}, "
            "which no --time-format can have",
            path=path,
            value=weekday.example,
            remedy="write them in ISO 8601, or name another column with --column ts=NAME",
        )
    raise InputError(
        "no column holds times of 1990 to 2100, of " + _list_paths(search.columns),
        path=path,
        remedy="name one with --column ts=NAME, and how it is written with --time-format or "
        "--time-unit",
    )


def _take_actions(search: _Search) -> None:
    if "action" in search.given:
        settled = search.settled("action")
        search.words = None if settled is None else _guess_words(search, settled)
        return
    found = search.find_action()
    if found is not None:
        column, search.words = found
        if search.words.unknown:
            search.doubts.append(
                f"the actions {', '.join(map(repr, search.words.unknown))} are not known: say what "
                "they mean with --action subscribe=WORD or --action unsubscribe=WORD"
            )
        search.take("action", column, f"its words are {list_words(column.values)}")
        return
    named = [one for one in search.rank("action", search.free()) if search.score("action", one) > 4]
    if named and named[0].exact and named[0].distinct <= 2:
        search.words = _guess_words(search, named[0])
        search.take("action", named[0], "by its name")
        return
    if named:
        search.doubts.append(
            f"no word of {named[0].path!r} ({list_words(named[0].values)}) is known as an action: "
            "every row is taken as a subscription; otherwise use --column action="
            f"{named[0].path} and --action"
        )
    search.leave_out("action", "no column has words for actions: every row is a subscription")


def _guess_words(search: _Search, column: ColumnProfile) -> ActionWords | None:
    """The words of a column that is one of actions; unknown ones are guessed by their numbers."""
    known = find_action_words(column)
    if known is not None or not column.exact or column.distinct > 2:
        return known
    most = sorted(column.values, key=lambda word: (-column.values[word], word))
    if any(word != word.strip() or "," in word for word in most):
        return None
    words = ActionWords(tuple(most[:1]), tuple(most[1:]), (), clear=False)
    search.doubts.append(
        f"{most[0]!r} is taken as subscribe"
        + (f" and {most[1]!r} as unsubscribe" if most[1:] else "")
        + ", as no word is known and subscriptions are more"
    )
    return words


def _take_size(search: _Search) -> None:
    if "size" in search.given:
        return
    fitting = [one for one in search.free() if _is_size(one)]
    named = [one for one in search.rank("size", fitting) if search.score("size", one) >= HINTED]
    if named:
        search.take("size", named[0], "whole numbers, by its name")
    elif search.has("size"):
        search.leave_out("size", "most values of 'size' are no whole numbers")


def _is_size(column: ColumnProfile) -> bool:
    typed = not column.type or column.type.startswith(
        ("string", "bigint", "int", "smallint", "tinyint", "double", "float", "decimal")
    )
    return typed and column.present > 0 and measure_whole(column) >= 0.5


def _take_count(search: _Search) -> None:
    """A count of messages changes what a row means, so its name must be clear."""
    if "count" in search.given:
        return
    fitting = [one for one in search.free() if _is_count(one)]
    named = [one for one in search.rank("count", fitting) if search.score("count", one) >= NAMED]
    if named:
        search.take("count", named[0], "each row stands for so many messages, by its name")
    elif search.has("count"):
        search.leave_out("count", "most values of 'count' are no whole numbers of at least 1")


def _is_count(column: ColumnProfile) -> bool:
    zeros = sum(number for text, number in column.values.items() if not text.strip("0 "))
    return _is_size(column) and 2 * zeros < sum(column.values.values())


def _take_id(search: _Search) -> None:
    if "id" in search.given:
        return
    fitting = [
        one
        for one in search.free()
        if one.is_leaf and one.present and 10 * one.distinct >= 8 * one.present
    ]
    named = [one for one in search.rank("id", fitting) if search.score("id", one) > 0]
    partitions = next((one for one in search.columns if one.path == "partition"), None)
    if named and named[0].path == "offset" and partitions and partitions.distinct > 1:
        named = named[1:]  # Kafka counts in each partition
    if named and (len(named[0].steps) == 1 or search.score("id", named[0]) >= HINTED):
        search.take("id", named[0], "nearly every row has its own")
    elif search.has("id"):
        search.leave_out("id", "most values of 'id' come more than once")


# --- the search ----------------------------------------------------------------------------------


class _Search:
    """The columns of a log, and those that have got a role so far."""

    def __init__(self, columns: Sequence[ColumnProfile], given: Mapping[str, str]) -> None:
        self.columns = columns
        self.given = given
        self.found: dict[str, Role] = {}
        self.times: TimeLook | None = None
        self.words: ActionWords | None = None
        self.doubts: list[str] = []
        self._taken = {path for path in given.values() if path}
        for name, path in given.items():
            self.found[name] = Role(name, path, "as --column says")

    def make_roles(self, kind: LogKind) -> Roles:
        known = {name: self.found[name] for name in LOG_COLUMNS[kind] if name in self.found}
        doubts = [role.doubt for role in known.values() if role.doubt]
        return Roles(kind, known, self.times, self.words, (*doubts, *self.doubts))

    def has(self, name: str) -> bool:
        return any(one.steps == (name,) for one in self.columns)

    def settled(self, name: str) -> ColumnProfile | None:
        return next((one for one in self.columns if one.path == self.given.get(name)), None)

    def free(self) -> list[ColumnProfile]:
        """The columns with values of their own that have no role yet."""
        return [
            one
            for one in self.columns
            if one.present and one.is_leaf and one.path not in self._taken
        ]

    def score(self, role: str, column: ColumnProfile) -> int:
        """How well the name of a column fits a role; one that is always the same fits less."""
        score = score_name(role, column.steps)
        constant = column.distinct == 1 and column.rows > 1 and role in ("receiver", "flow")
        return max(score - 5, 0) if constant and score < DOCUMENTED else score

    def rank(self, role: str, columns: Sequence[ColumnProfile]) -> list[ColumnProfile]:
        """The columns whose names fit best first; of those alike, the shallower and former."""
        return sorted(columns, key=lambda one: (-self.score(role, one), len(one.steps)))

    def take(self, name: str, column: ColumnProfile | None, why: str) -> None:
        if name in self.given or column is None:
            return
        self._taken.add(column.path)
        self.found[name] = Role(name, column.path, why, self._doubt(name, column))

    def leave_out(self, name: str, why: str) -> None:
        self.found[name] = Role(name, "", why)

    def take_named(self, path: str, role: str) -> None:
        """Take the column that is named for a role, or else one that could be it."""
        if role in self.given:
            return
        fitting = self._could_be_name()
        if not fitting:
            raise InputError(
                f"no column can be the {role}, of {_list_paths(self.columns)}",
                path=path,
                remedy=f"name it with --column {role}=NAME",
            )
        best = self.rank(role, fitting)[0]
        if self.score(role, best):
            self.take(role, best, "by its name")
            return
        best = self._choose_by_values(role, fitting)
        self._taken.add(best.path)
        others = [one.path for one in fitting if one is not best]
        doubt = f"the column of the {role} cannot be told by its name: {best.path!r} is a guess"
        if others:
            doubt += f"; it could be {_list_names(others)} (--column {role}=NAME)"
        self.found[role] = Role(role, best.path, "a guess by its values", doubt)

    def find_named(self, role: str) -> ColumnProfile | None:
        """The column that is named for a role."""
        fitting = self.rank(role, self._could_be_name())
        return fitting[0] if fitting and self.score(role, fitting[0]) else None

    def find_time(self) -> tuple[ColumnProfile, TimeLook] | None:
        """The column of times: by name and values, or by values that can be nothing else."""
        found = []
        for column in self.free():
            times, score = find_times(column), self.score("ts", column)
            if times is not None and (score or times.unit is None or times.share >= 0.95):
                sure = score if score >= HINTED or times.unit is None else min(score, 1)
                found.append((-sure, times.unit is not None, len(column.steps), column, times))
        if not found:
            return None
        best = min(found, key=lambda one: one[:3])
        return best[3], best[4]

    def find_worded_time(self, pattern: str) -> tuple[ColumnProfile, TimeLook] | None:
        """The column that a given format is for: the best name among texts."""
        texts = [one for one in self.free() if one.type in ("", "string")]
        best = next(iter(self.rank("ts", texts)), None)
        if best is None or not self.score("ts", best):
            return None
        return best, TimeLook(1.0, pattern=pattern)

    def find_action(self) -> tuple[ColumnProfile, ActionWords] | None:
        """The column with words for actions: by the words, or by the name if words are short."""
        found = []
        for column in self.free():
            words, score = find_action_words(column), self.score("action", column)
            if words is None:
                continue
            known = sum(column.values[word] for word in (*words.subscribe, *words.unsubscribe))
            most = 2 * known >= sum(column.values.values())
            # Words such as 1 and 0 are actions only in a column that is named for them.
            both = bool(words.subscribe and words.unsubscribe)
            if most and (words.clear or score >= HINTED or (score >= FAINT and both)):
                found.append((-score, not words.clear, len(column.steps), column, words))
        if not found:
            return None
        best = min(found, key=lambda one: one[:3])
        return best[3], best[4]

    def find_filter(self) -> ColumnProfile | None:
        """The column whose values are conditions."""
        fitting = [one for one in self.free() if _holds_conditions(one)]
        return next(iter(self.rank("filter", fitting)), None)

    def _could_be_name(self) -> list[ColumnProfile]:
        """The columns that may hold names of receivers or flows: text and whole numbers."""
        return [
            one
            for one in self.free()
            if (not one.type or one.type in _NAME_TYPES)
            and (self.score("receiver", one) or self.score("flow", one) or not find_times(one))
        ]

    def _choose_by_values(self, role: str, fitting: Sequence[ColumnProfile]) -> ColumnProfile:
        """A column without a telling name: text before numbers, repeated before unique values."""

        def rank(column: ColumnProfile) -> tuple[bool, bool, bool, int]:
            other = "flow" if role == "receiver" else "receiver"
            return (
                self.score(other, column) > 0 or self.score("id", column) > 0,
                column.distinct < 2,
                _is_fraction(column),
                len(column.steps),
            )

        return min(fitting, key=rank)

    def _doubt(self, role: str, column: ColumnProfile) -> str:
        """What could be wrong about a column that was taken by its name."""
        score = self.score(role, column)
        rule: Callable[[ColumnProfile], bool] = {
            "ts": lambda one: find_times(one) is not None,
            "action": lambda one: False,
            "filter": _holds_conditions,
            "size": _is_size,
            "count": _is_count,
            "id": lambda one: False,
        }.get(role, lambda one: one in self._could_be_name())
        rivals = [
            one.path
            for one in self.free()
            if one is not column
            and score < DOCUMENTED
            and self.score(role, one) >= score
            and rule(one)
        ]
        if rivals:
            return (
                f"{column.path!r} is taken as the {role}, but {_list_names(rivals)} could be it as "
                f"well (--column {role}=NAME)"
            )
        numbers = role == "ts" and (times := find_times(column)) and times.unit is not None
        if score < HINTED and (role in ("receiver", "flow", "filter") or numbers):
            return f"{column.path!r} is taken as the {role}: check it (--column {role}=NAME)"
        return ""


_NAME_TYPES = frozenset({"string", "bigint", "int", "smallint", "tinyint", "boolean", "binary"})
_CONDITION = re.compile(r"[=<>]|\b(in|like|between|is|rlike|not)\b", re.IGNORECASE)


def _holds_conditions(column: ColumnProfile) -> bool:
    good = sum(number for text, number in column.values.items() if _CONDITION.search(text))
    return (
        column.present > 0
        and 10 * good >= 8 * sum(column.values.values())
        and (score_name("filter", column.steps) > 0)
    )


def _is_fraction(column: ColumnProfile) -> bool:
    return any(re.fullmatch(r"\s*-?\d*\.\d+\s*", value) for value in column.values)


def _list_paths(columns: Sequence[ColumnProfile]) -> str:
    return _list_names([one.path for one in columns])


def _list_names(paths: Sequence[str]) -> str:
    listed = ", ".join(map(repr, paths[:8])) or "none"
    return f"{listed} and {len(paths) - 8} more" if len(paths) > 8 else listed
