"""Limits of a network from a TOML file, or from a profile that comes with the package.

`docs/limits.md` describes the file. Reading is strict: what is not understood is an error.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import asdict
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from distributary.files.columns import Column, ColumnKind
from distributary.files.constraints import map_names
from distributary.files.faults import (
    input_fault,
    list_names,
    read_fault,
    show_value,
    summarize_error,
)
from distributary.files.tables import read_table
from distributary.model import Amount, Limits, PacketStep, Unit

__all__ = ["limits_document", "list_profiles", "parse_limits", "read_limits", "read_profile"]

SWITCHES = (Column("receiver", ColumnKind.TEXT), Column("switch", ColumnKind.TEXT))
SECTIONS = {
    "groups": ("members", "rate", "packets"),
    "receivers": ("groups", "sessions", "rate"),
    "network": ("groups", "sessions"),
    "switches": ("entries", "table"),
}
MOST, LARGEST = 2**31 - 1, sys.float_info.max
COUNT_WORDS = "a whole number above 0"
AMOUNT_WORDS = "a finite number above 0"
_PROFILES = files("distributary.files").joinpath("profiles")


def list_profiles() -> dict[str, str]:
    """The names of the profiles, and what each is for in one line."""
    found = {}
    for entry in sorted(_PROFILES.iterdir(), key=lambda entry: entry.name):
        first = entry.read_text(encoding="utf-8").partition("\n")[0]
        found[entry.name.removesuffix(".toml")] = first.removeprefix("#").strip()
    return found


def read_profile(name: str) -> str:
    """The text of a profile, as TOML."""
    return _PROFILES.joinpath(f"{name}.toml").read_text(encoding="utf-8")


def read_limits(
    source: str | os.PathLike[str],
    receivers: Collection[str] | None = None,
    count: Unit = "messages",
) -> Limits:
    """Read limits from a TOML file or, by its name, from a profile.

    If `receivers` are given, a limit of any other receiver is an error. `count` is what the rates
    of the demand count, for rates with a unit.
    """
    if isinstance(source, str) and source in list_profiles():
        return _parse(Path(source), read_profile(source).encode(), None, count)
    path = Path(source)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise read_fault(path, error) from None
    return _parse(path, text, None if receivers is None else set(receivers), count)


def parse_limits(text: str, name: str = "limits", count: Unit = "messages") -> Limits:
    """The limits of a text as in a file; it cannot name a table of switches, which is a file."""
    return _parse(Path(name), text.encode(), None, count, has_tables=False)


def limits_document(limits: Limits) -> dict[str, Any]:
    """The limits that are set, for JSON."""
    return {name: value for name, value in asdict(limits).items() if value}


def _parse(
    path: Path,
    text: bytes,
    receivers: set[str] | None,
    count: Unit,
    *,
    has_tables: bool = True,
) -> Limits:
    try:
        document = tomllib.loads(text.decode("utf-8"))
    except UnicodeDecodeError:
        raise input_fault(path, "is not Unicode text", remedy="save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise input_fault(
            path,
            f"does not parse as TOML: {summarize_error(error)}",
            remedy="`distributary limits show linux` prints an example",
        ) from None
    for name, content in document.items():
        if name not in SECTIONS or not isinstance(content, dict):
            raise input_fault(
                path,
                f"{show_value(name)} is no section of limits",
                value=name,
                remedy=f"put keys under {', '.join(f'[{section}]' for section in SECTIONS)}",
            )
    groups, to_receivers, network, switches = (
        _Section(path, name, document.get(name, {}), count) for name in SECTIONS
    )
    groups.refuse_names()
    network.refuse_names()
    table = switches.own.get("table")
    if table is not None and not has_tables:
        raise input_fault(
            path,
            f"table of [switches] is {show_value(table)}, and only a file of limits has tables",
            value=table,
            remedy="take [switches] out",
        )
    switch_of = _read_switches(path, table, receivers)
    receiver_rates = to_receivers.rates_by_name("rate")
    to_receivers.check_known(receiver_rates, receivers, "nobody of this name wants a flow")
    entries_of = switches.counts_by_name("entries")
    if bool(switch_of) != bool(entries_of or "entries" in switches.own):
        raise input_fault(
            path,
            "[switches] has " + ("a table without entries" if switch_of else "no table"),
            remedy="give entries, and a table that says which switch each receiver is behind",
        )
    switches.check_known(entries_of, set(switch_of.values()), "the table names no such switch")
    return Limits(
        group_members=groups.count("members"),
        group_rate=groups.rate("rate"),
        group_packets=groups.steps("packets"),
        receiver_groups=to_receivers.count("groups"),
        receiver_sessions=to_receivers.count("sessions"),
        receiver_rate=to_receivers.rate("rate"),
        receiver_rates=receiver_rates,
        groups=network.count("groups"),
        sessions=network.count("sessions"),
        switch_entries=switches.count("entries"),
        switch_of=switch_of,
        entries_of=entries_of,
    )


def _read_switches(path: Path, table: object, receivers: set[str] | None) -> dict[str, str]:
    """Read the table of receivers and their switches, which lies beside the file of limits."""
    if table is None:
        return {}
    if not isinstance(table, str):
        raise input_fault(
            path,
            f"table of [switches] is {show_value(table)}",
            value=table,
            remedy="give the path of a table with columns receiver, switch",
        )
    found = read_table(path.parent / table, SWITCHES)
    names, codes = found.names("switch")
    switch_of = map_names(found, "receiver", [names[code] for code in codes])
    if receivers is not None:
        receiver_names, receiver_codes = found.names("receiver")
        for index, code in enumerate(receiver_codes):
            if receiver_names[code] not in receivers:
                name = receiver_names[code]
                raise found.fault(
                    index,
                    f"receiver {show_value(name)} is not in the interest",
                    value=name,
                    remedy="correct the name, or take the row out",
                )
    return switch_of


class _Section:
    """The keys of a section, and the tables of single names in it."""

    def __init__(self, path: Path, name: str, content: Mapping[str, Any], count: Unit) -> None:
        self._path, self._title, self._count = path, f"[{name}]", count
        self.own = {key: value for key, value in content.items() if not isinstance(value, dict)}
        self._by_name = {key: value for key, value in content.items() if isinstance(value, dict)}
        for key, value in self.own.items():
            if key not in SECTIONS[name]:
                self._refuse(
                    f"{self._title} has no key {show_value(key)}",
                    value,
                    f"its keys are {', '.join(SECTIONS[name])}",
                )

    def count(self, key: str) -> int | None:
        return None if key not in self.own else self._check_count(key, self.own[key])

    def rate(self, key: str) -> float | None:
        return None if key not in self.own else self._check_rate(key, self.own[key])

    def steps(self, key: str) -> tuple[PacketStep, ...]:
        """A list of steps, or one number for any number of members."""
        given = self.own.get(key, [])
        if not isinstance(given, list):
            return (PacketStep(MOST, self._check_amount(key, given)),)
        steps = []
        for step in given:
            if not isinstance(step, dict) or step.keys() != {"members", "packets"}:
                self._refuse(
                    f"{key} of {self._title} has the step {show_value(step)}",
                    step,
                    "write each step as { members = 9, packets = 75_000 }",
                )
            steps.append(
                PacketStep(
                    self._check_count(f"members of {key}", step["members"]),
                    self._check_amount(f"packets of {key}", step["packets"]),
                )
            )
        for one, other in pairwise(steps):
            if one.members >= other.members:
                self._refuse(
                    f"{key} of {self._title} has {one.members} members before {other.members}",
                    other.members,
                    "order the steps by members",
                )
        return tuple(steps)

    def counts_by_name(self, key: str) -> dict[str, int]:
        return {
            name: self._check_count(key, value, name)
            for name, value in self._read_names(key).items()
        }

    def rates_by_name(self, key: str) -> dict[str, float]:
        return {
            name: self._check_rate(key, value, name)
            for name, value in self._read_names(key).items()
        }

    def refuse_names(self) -> None:
        """Refuse tables of single names."""
        for name, value in self._by_name.items():
            self._refuse(
                f"{self._title} has no names, such as {show_value(name)}",
                value,
                "limit all of them at once",
            )

    def check_known(
        self, names: Collection[str], known: Collection[str] | None, unknown: str
    ) -> None:
        """Refuse names that are not known."""
        for name in names:
            if known is not None and name not in known:
                self._refuse(
                    f"{self._title} names {show_value(name)}: {unknown}",
                    name,
                    f"correct the name, or take it out; known are {list_names(sorted(known))}",
                )

    def _read_names(self, key: str) -> dict[str, Any]:
        for name, content in self._by_name.items():
            if content.keys() != {key}:
                self._refuse(
                    f"{self._title} of {show_value(name)} has {list_names(content)}",
                    content,
                    f"the one key of a name is {key}",
                )
        return {name: content[key] for name, content in self._by_name.items()}

    def _check_count(self, key: str, value: object, name: str | None = None) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST:
            self._refuse_value(key, value, name, COUNT_WORDS)
        return value

    def _check_amount(self, key: str, value: object, name: str | None = None) -> float:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value <= LARGEST
        ):
            self._refuse_value(key, value, name, AMOUNT_WORDS)
        return float(value)

    def _check_rate(self, key: str, value: object, name: str | None = None) -> float:
        """A number in what the demand counts, or a text with a unit, such as 800Mbit."""
        if not isinstance(value, str):
            return self._check_amount(key, value, name)
        try:
            counted = Amount.parse(value).count_in(self._count)
        except ValueError as error:
            self._refuse(
                f"{key} of {self._name_place(name)} is {show_value(value)}: {error}",
                value,
                "give a number, or such as 800Mbit with --count bytes",
            )
        return self._check_amount(key, counted, name)

    def _refuse_value(self, key: str, value: object, name: str | None, words: str) -> NoReturn:
        self._refuse(
            f"{key} of {self._name_place(name)} is {show_value(value)}",
            value,
            f"it must be {words}",
        )

    def _name_place(self, name: str | None) -> str:
        return self._title if name is None else f"{self._title} of {show_value(name)}"

    def _refuse(self, reason: str, value: object, remedy: str) -> NoReturn:
        raise input_fault(self._path, reason, value=value, remedy=remedy)
