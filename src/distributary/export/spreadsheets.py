"""CSV files that a spreadsheet can open without running what is in them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

__all__ = ["guard_spreadsheets"]

# A spreadsheet takes a cell that begins like this for a formula, in quotes too; some take wide
# characters for narrow ones. An apostrophe is guarded as well, so that what was put in front can
# be told from what was there.
DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")


def guard_spreadsheets(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same files; in each CSV file, cells that may be run as a formula begin with \"'\".

    Without the first apostrophe of every cell that begins with one, they are as before.
    """
    return {
        name: _guard(content) if name.endswith(".csv") else content
        for name, content in files.items()
    }


def _guard(content: bytes) -> bytes:
    rows = csv.reader(io.StringIO(content.decode(), newline=""))
    guarded = io.StringIO(newline="")
    writer = csv.writer(guarded, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        writer.writerow([f"'{cell}" if cell.startswith(DANGEROUS) else cell for cell in row])
    return guarded.getvalue().encode()
