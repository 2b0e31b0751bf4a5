"""What values look like: times with their unit or pattern, and words for actions.

Only plain Python: the reader itself checks afterwards what is concluded here.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

from distributary.pipeline.moments import FIRST_SECOND, ISO, LAST_SECOND, NUMBER, choose_unit
from distributary.pipeline.profiles import ColumnProfile
from distributary.pipeline.shapes import UNITS, TimeUnit

__all__ = [
    "ActionWords",
    "TimeLook",
    "find_action_words",
    "find_times",
    "list_words",
    "measure_whole",
    "names_weekdays",
]

_ISO, _NUMBER = re.compile(ISO), re.compile(NUMBER)
_ISO_ZONED = re.compile(r":\d\d([.,]\d+)? ?(Z|[+-]\d\d(:?\d\d)?)$")
_WEEKDAY = re.compile(r"\[?(mon|tue|wed|thu|fri|sat|sun)[a-z]*,? ", re.IGNORECASE)
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sep(?:tember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_TIME = (
    r"(?P<hour>\d\d?):(?P<minute>\d\d)(?P<seconds>:\d\d(?:(?P<point>[.,])(?P<fraction>\d{1,9}))?)?"
    r"(?P<half> ?[ap]m)?"
)
_ZONE = (
    r"(?P<gap> ?)(?:(?P<utc>Z)|(?P<colon>[+-]\d\d:\d\d)|(?P<four>[+-]\d{4})|(?P<two>[+-]\d\d)"
    r"|(?P<region>[A-Z][A-Za-z]+/[A-Za-z_/]+)|(?P<zone>[A-Z]{3,4}))"
)
_WHOLE_TIME = rf"(?:(?P<joint>, |[T :_-]){_TIME}(?:{_ZONE})?)?"
_DATES = (
    rf"(?P<year>\d{{4}})(?P<mark>[-/. ])(?P<month>\d\d?|{_MONTH})(?P=mark)(?P<day>\d\d?)",
    rf"(?P<first>\d\d?)(?P<mark>[-/. ])(?P<second>\d\d?|{_MONTH})(?P=mark)(?P<year>\d{{4}}|\d\d)",
    rf"(?P<month>{_MONTH})(?P<mark> )(?P<day>\d\d?),? (?P<year>\d{{4}})",
)
_PATTERNS = tuple(
    re.compile(rf"(?P<open>\[)?{date}{_WHOLE_TIME}(?P<close>\])?", re.IGNORECASE) for date in _DATES
)
_PARTS = ("open", "half", "seconds")
_ZONES = {"utc": "X", "colon": "XXX", "four": "Z", "two": "X", "region": "VV", "zone": "z"}
_COMPACT = re.compile(
    r"(?P<date>(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]))"
    r"(?P<time>(?P<joint>[T_ -]?)(?:[01]\d|2[0-3])[0-5]\d[0-5]\d(?P<milli>\d{3})?(?P<utc>Z)?)?"
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_JOIN = _words(
    "subscribe subscribed sub subs join joined add added follow followed watch register registered "
    "attach attached subscription psubscribe enter entered listen"
)
_LEAVE = _words(
    "unsubscribe unsubscribed unsub unsubs leave left remove removed delete deleted unfollow "
    "unfollowed unwatch unregister deregister detach detached unsubscription punsubscribe exit "
    "exited drop dropped cancel cancelled quit part"
)
_ON = _words(
    "on 1 + true yes y in start started open opened connect connected login logon enable enabled "
    "active begin up s j create created insert inserted"
)
_OFF = _words(
    "off 0 - -1 false no n out stop stopped close closed disconnect disconnected logout logoff "
    "disable disabled inactive end ended down u l expire expired"
)
MOST_WORDS: Final = 20
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


@dataclass(frozen=True, slots=True)
class TimeLook:
    """How the times of a column are written; `share` of its values are.

    They have a `unit`, a `pattern`, or are ISO 8601 or typed. `zoned`: all of them name their zone,
    as numbers do. `doubt` says what cannot be told from the values.
    """

    share: float
    unit: TimeUnit | None = None
    pattern: str | None = None
    typed: bool = False
    zoned: bool = True
    doubt: str = ""

    def describe(self) -> str:
        """What the times are, in words."""
        if self.pattern is not None:
            return f"in the format {self.pattern!r}"
        if self.unit is not None:
            return f"{_UNIT_NAMES[self.unit]} since 1970"
        return "times of the table" if self.typed else "ISO 8601"


@dataclass(frozen=True, slots=True)
class ActionWords:
    """The words of a column that mean subscribe, unsubscribe, and those that are not known.

    `clear`: the words alone say that they are actions.
    """

    subscribe: tuple[str, ...]
    unsubscribe: tuple[str, ...]
    unknown: tuple[str, ...]
    clear: bool


def measure_whole(column: ColumnProfile) -> float:
    """The share of a column's values that are whole numbers from 0."""
    good = sum(n for v, n in column.values.items() if re.fullmatch(r"\s*\d{1,10}(\.0*)?\s*", v))
    return good / max(sum(column.values.values()), 1)


def find_action_words(column: ColumnProfile) -> ActionWords | None:
    """Sort the words of a column by what they mean; None if it has too many, or none is known."""
    if not column.present or column.distinct > MOST_WORDS or not column.exact:
        return None
    found: dict[str, list[str]] = {"subscribe": [], "unsubscribe": [], "unknown": []}
    clear = False
    for word in column.values:
        plain = re.sub(r"[\s_.-]*(event|request|ed)?$", "", word.strip().lower()) or word.strip()
        forms = {plain, word.strip().lower(), plain.rpartition("_")[2], plain.rpartition(".")[2]}
        joins, leaves = bool(forms & (_JOIN | _ON)), bool(forms & (_LEAVE | _OFF))
        # What a comma divides, or what spaces surround, cannot be given as a word.
        usable = word == word.strip() and "," not in word
        clear |= bool(forms & (_JOIN | _LEAVE))
        known = "subscribe" if joins else "unsubscribe" if leaves else "unknown"
        found[known if usable else "unknown"].append(word)
    if not found["subscribe"] and not found["unsubscribe"]:
        return None
    return ActionWords(
        tuple(sorted(found["subscribe"])),
        tuple(sorted(found["unsubscribe"])),
        tuple(sorted(found["unknown"])),
        clear,
    )


def find_times(column: ColumnProfile) -> TimeLook | None:
    """How the times of a column are written; None if fewer than half of its values are times."""
    if column.type:
        if column.type.startswith(("timestamp", "date")):
            return TimeLook(1.0, typed=True, zoned=column.type == "timestamp")
        if column.type not in _TYPED_NUMBERS and not column.type.startswith(("decimal", "string")):
            return None
    if not column.present or not column.is_leaf:
        return None
    found = _count_times(column)
    pattern = _find_pattern(column) if column.type not in _TYPED_NUMBERS else None
    if pattern is not None and (found is None or pattern.share > found.share):
        found = pattern
    return found if found is not None and found.share >= 0.5 else None


def names_weekdays(column: ColumnProfile) -> bool:
    """Whether most values begin with the name of a day, which no pattern can have."""
    total = sum(column.values.values())
    return 2 * sum(n for v, n in column.values.items() if _WEEKDAY.match(v)) > total


_TYPED_NUMBERS = frozenset({"bigint", "int", "smallint", "tinyint", "double", "float"})


def _count_times(column: ColumnProfile) -> TimeLook | None:
    """Times in ISO 8601 and numbers, as the reader takes them when nothing is said."""
    votes: Counter[str] = Counter()
    local = 0
    for value, number in column.values.items():
        look = _look_at(value.strip())
        votes[look] += number
        if look == "iso" and _ISO_ZONED.search(value.strip()) is None:
            local += number
    unit = choose_unit(votes)
    good = votes["iso"] + (votes[unit] if unit is not None else 0)
    if not good:
        return None
    return TimeLook(good / sum(votes.values()), unit, zoned=not local)


def _look_at(value: str) -> str:
    """Python's twin of `moments.guess_unit`, of one value."""
    if _ISO.match(value):
        return "iso"
    if not _NUMBER.match(value):
        return "text"
    try:
        number = Decimal(value)
    except InvalidOperation:
        return "text"
    for unit, scale in UNITS.items():
        if FIRST_SECOND * scale <= number < (LAST_SECOND + 1) * scale:
            return unit
    return "number"


# --- patterns ------------------------------------------------------------------------------------


def _find_pattern(column: ColumnProfile) -> TimeLook | None:
    """The pattern that most of a column's values have."""
    groups: defaultdict[tuple[object, ...], list[tuple[re.Match[str], int]]] = defaultdict(list)
    for value, number in column.values.items():
        found = _match_pattern(value.strip())
        if found is not None:
            key, match = found
            groups[key].append((match, number))
    if not groups:
        return None
    best = max(groups, key=lambda key: sum(number for _, number in groups[key]))
    matches = [match for match, _ in groups[best]]
    share = sum(number for _, number in groups[best]) / sum(column.values.values())
    if best[0] == "compact":
        pattern, zoned, doubt = _write_compact(matches)
    else:
        pattern, zoned, doubt = _write_pattern(matches)
    return TimeLook(share, pattern=pattern, zoned=zoned, doubt=doubt)


def _match_pattern(value: str) -> tuple[tuple[object, ...], re.Match[str]] | None:
    """How a value is built, without its numbers of digits, and its parts."""
    compact = _COMPACT.fullmatch(value)
    if compact is not None:
        kept = (compact["time"] is None, compact["joint"], compact["milli"] is None, compact["utc"])
        return ("compact", *kept), compact
    for order, pattern in enumerate(_PATTERNS):
        match = pattern.fullmatch(value)
        if match is not None and (match["open"] is None) == (match["close"] is None):
            named = [name for name in (*_PARTS, *_ZONES) if match[name] is not None]
            worded = not any(
                text.isdigit()
                for name in ("month", "second")
                if (text := match.groupdict().get(name))
            )
            year = len(match["year"])
            fixed = (
                match["mark"],
                match["joint"],
                match["gap"],
                match["half"] and match["half"][0],
            )
            comma = order == 2 and "," in value[: match.start("year")]
            return (order, year, worded, comma, *named, *fixed), match
    return None


def _write_compact(matches: Sequence[re.Match[str]]) -> tuple[str, bool, str]:
    match = matches[0]
    if match["time"] is None:
        return "yyyyMMdd", False, ""
    milli = "SSS" if match["milli"] else ""
    zone = "X" if match["utc"] else ""
    return f"yyyyMMdd{_quote(match['joint'])}HHmmss{milli}{zone}", bool(zone), ""


def _write_pattern(matches: Sequence[re.Match[str]]) -> tuple[str, bool, str]:
    """The pattern of texts that are built alike, whether it has a zone, and what is in doubt."""
    first = matches[0]
    parts, doubt = _write_date(matches)
    if first["joint"] is not None:
        parts += _quote(first["joint"]) + _write_time(matches)
    zone = _write_zone(matches)
    if zone:
        parts += first["gap"] + zone
    if first["open"]:
        parts = f"'['{parts}']'"
    return parts, bool(zone), doubt


def _write_date(matches: Sequence[re.Match[str]]) -> tuple[str, str]:
    first = matches[0]
    groups = first.groupdict()
    mark, year = _quote(first["mark"]), "y" * len(first["year"])
    if "first" not in groups:
        month, day = _write_month(matches, "month"), _write_digits(matches, "day", "d")
        if first.re is _PATTERNS[2]:
            comma = "," if "," in first[0][: first.start("year")] else ""
            return f"{month} {day}{comma} {year}", ""
        return f"{year}{mark}{month}{mark}{day}", ""
    if not first["second"].isdigit():
        day, month = _write_digits(matches, "first", "d"), _write_month(matches, "second")
        return f"{day}{mark}{month}{mark}{year}", ""
    day_first = any(int(match["first"]) > 12 for match in matches)
    month_first = any(int(match["second"]) > 12 for match in matches)
    doubt = ""
    if not day_first and not month_first:
        doubt = f"whether {first[0]!r} has the day or the month first"
    letters = ("M", "d") if month_first and not day_first else ("d", "M")
    one, two = (
        _write_digits(matches, name, letter)
        for name, letter in zip(("first", "second"), letters, strict=True)
    )
    return f"{one}{mark}{two}{mark}{year}", doubt


def _write_time(matches: Sequence[re.Match[str]]) -> str:
    first = matches[0]
    pattern = _write_digits(matches, "hour", "h" if first["half"] else "H") + ":mm"
    if first["seconds"] is not None:
        pattern += ":ss"
        points = {match["point"] for match in matches if match["point"]}
        if points:
            longest = max(len(match["fraction"] or "") for match in matches)
            point = min(points)
            fraction = f"{point}{'S' * longest}"
            pattern += fraction if all(match["point"] for match in matches) else f"[{fraction}]"
    if first["half"]:
        pattern += " a" if first["half"].startswith(" ") else "a"
    return pattern


def _write_zone(matches: Sequence[re.Match[str]]) -> str:
    return next((letters for name, letters in _ZONES.items() if matches[0][name]), "")


def _write_month(matches: Sequence[re.Match[str]], name: str) -> str:
    if matches[0][name].isdigit():
        return _write_digits(matches, name, "M")
    return "MMMM" if any(len(match[name]) > 3 for match in matches) else "MMM"


def _write_digits(matches: Iterable[re.Match[str]], name: str, letter: str) -> str:
    """Two letters if every text has two digits there; one letter takes one digit as well."""
    return letter * 2 if all(len(match[name]) == 2 for match in matches) else letter


def _quote(text: str) -> str:
    """Text of a pattern that stands for itself."""
    return re.sub(r"[A-Za-z_\[\]#{}]+", lambda found: f"'{found[0]}'", text or "")


def list_words(counts: Mapping[str, int]) -> str:
    """Words with their numbers, the most frequent first."""
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{word!r}" for word, _ in most[:6])
    return f"{listed} and {len(most) - 6} more" if len(most) > 6 else listed
