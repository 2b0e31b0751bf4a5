"""Where a record of CSV ends and what its cells are: one grammar (RFC 4180) for every reader.

A field in quotes may hold commas, line ends and doubled quotes, and nothing but a comma or the end
of the record may follow its closing quote. In a field without quotes a quote stands for itself.
Records end with a line feed, a carriage return or both. A line of spaces alone is no record.

The patterns mean the same to Python and to Java, so that Spark judges lines by them as well. All
repetitions are possessive: matching takes time in proportion to the text, and no stack.
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
"""A line that ends inside quotes: the record goes on in the next line, if it is one."""

LONGEST_RECORD = 1 << 24
"""How many characters a record of several lines may have before it counts as an open quote."""

_record = re.compile(RECORD)
_fields = re.compile(f",({FIELD})")
_open_line = re.compile(rf"{OPEN_LINE}\Z")
_open_again = re.compile(rf'{_INSIDE}(?:"(?:,{FIELD})*+"{_INSIDE})?\Z')
_text = re.compile(rf"(?:{RECORD}(?:\r\n|\r|\n|\Z))*+\Z")


def is_csv(text: str) -> bool:
    """Whether all of a text is records, of however many fields, and blank lines."""
    return '"' not in text or _text.match(text) is not None


def csv_cells(record: str) -> list[str] | None:
    """The cells of a record without its line end; None if it is not one."""
    if '"' not in record:
        return record.split(",")
    if _record.fullmatch(record) is None:
        return None
    return [
        cell[1:-1].replace('""', '"') if cell.startswith('"') else cell
        for cell in _fields.findall(f",{record}")
    ]


def csv_records(lines: Iterable[str], width: int | None = None) -> Iterator[str]:
    """Join lines, which keep their ends, into records, which do not.

    Lines are joined only where that makes a record (of `width` fields). Else the first of them is
    given by itself, and reading goes on with the next: a stray quote costs one row and not the
    rest of the file.
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
    """The lines from an open one to where its quotes close, or can no longer."""
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
