"""The grammar of CSV (RFC 4180) that every reader uses: where records end and what their cells are.

A quoted field may hold commas, line ends and doubled quotes; its closing quote is followed by a
comma or the end of the record. In an unquoted field a quote stands for itself. Records end with a
line feed, a carriage return or both. A line of spaces alone is not a record.

The patterns mean the same in Python and in Java, because Spark uses them as well. All repetitions
are possessive, so matching takes linear time and constant stack.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator

__all__ = ["FIELD", "LONGEST_RECORD", "OPEN_LINE", "RECORD", "csv_cells", "csv_records", "is_csv"]

_INSIDE = r'[^"]*+(?:""[^"]*+)*+'
FIELD = rf'(?:"{_INSIDE}"|[^",\r\n][^,\r\n]*+)?+'
RECORD = rf"{FIELD}(?:,{FIELD})*+"
OPEN_LINE = rf'{RECORD}"{_INSIDE}'
"""A line that ends inside quotes: its record continues on the next line."""

LONGEST_RECORD = 1 << 24
"""The most characters of a record over several lines; beyond, its quote counts as never closed."""

_record = re.compile(RECORD)
_fields = re.compile(f",({FIELD})")
_open_line = re.compile(rf"{OPEN_LINE}\Z")
_open_again = re.compile(rf'{_INSIDE}(?:"(?:,{FIELD})*+"{_INSIDE})?\Z')
_text = re.compile(rf"(?:{RECORD}(?:\r\n|\r|\n|\Z))*+\Z")


def is_csv(text: str) -> bool:
    """Whether a text consists of records, with any number of fields, and blank lines."""
    return '"' not in text or _text.match(text) is not None


def csv_cells(record: str) -> list[str] | None:
    """The cells of a record given without its line end; None if it is not a valid record."""
    if '"' not in record:
        return record.split(",")
    if _record.fullmatch(record) is None:
        return None
    return [
        cell[1:-1].replace('""', '"') if cell.startswith('"') else cell
        for cell in _fields.findall(f",{record}")
    ]


def csv_records(lines: Iterable[str], width: int | None = None) -> Iterator[str]:
    """Join lines, given with their line ends, into records without them.

    Lines are joined only where the result is a valid record (of `width` fields). Otherwise the
    first line is a record by itself and reading continues with the next one: a stray quote spoils
    one row and not the rest of the file.
    """
    coming, again = iter(lines), deque[str]()
    while (line := again.popleft() if again else next(coming, None)) is not None:
        text = line.rstrip("\r\n")
        if not text.strip(" "):
            continue
        if '"' not in text or _open_line.match(text) is None:
            yield text
            continue
        taken = _take_record(line, again, coming)
        record = "".join(taken).rstrip("\r\n")
        cells = csv_cells(record)
        if cells is not None and width in (None, len(cells)):
            yield record
        else:
            yield text
            again.extendleft(reversed(taken[1:]))


def _take_record(line: str, again: deque[str], coming: Iterator[str]) -> list[str]:
    """The lines from one with an open quote to where its record is complete or cannot be."""
    taken, length = [line], len(line)
    while length < LONGEST_RECORD:
        more = again.popleft() if again else next(coming, None)
        if more is None:
            break
        taken.append(more)
        length += len(more)
        if _open_again.match(more.rstrip("\r\n")) is None:
            break
    return taken
