"""The index of a folder of figures, read from the pages that the folder holds.

So the index is right whether the figures were run together or one by one, and on whichever day.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from distributary.errors import InputError, OutputError
from distributary.files.replacing import replace_file
from distributary.papers.catalogue import FIGURES
from distributary.papers.figure import HOLDS, Claim
from distributary.papers.summary import describe_papers
from distributary.papers.wording import sentence_case, table

__all__ = ["Page", "read_page", "write_index"]

BRIEF = "in-a-hurry.md"
HEADING = "# The papers' figures, run again"

# What `Figure.text` writes: the heading, then source and verdict, and the command near the end.
_HEAD = re.compile(
    r"# (?P<title>.+)\n\n(?P<source>.+)\. (?P<verdict>[A-Z][a-z ]+: \d+ of \d+ claims hold)\.\n"
)
_COMMAND = re.compile(r"^ {4}(?P<command>distributary paper run .+) --out DIR$", re.MULTILINE)
_CLAIMS = re.compile(
    r"^## What the paper claims\n\n\|.*\n\|.*\n(?P<rows>(?:\|.*\n)*)", re.MULTILINE
)


_OWN = re.compile(r"^## What ours adds\n\n(?P<own>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    """What the index says of one figure."""

    name: str
    title: str
    source: str
    verdict: str
    command: str
    claims: tuple[Claim, ...]
    own: str  # the first paragraph of what ours adds; may be empty

    @property
    def paper(self) -> str:
        """The paper as its pages cite it, as in `Tock et al. (2005)`."""
        return self.source.partition(",")[0]


def read_page(path: Path) -> Page:
    """Read a page that `write_figure` wrote."""
    text = path.read_text(encoding="utf-8")
    head, command, claims = _HEAD.match(text), _COMMAND.search(text), _CLAIMS.search(text)
    if head is None or command is None or claims is None:
        raise InputError(
            "is not a figure's page as `paper run` writes it",
            path=str(path),
            remedy=f"run `distributary paper run {path.stem}` again, or move the file away",
        )
    own = _OWN.search(text)
    rows = (row.strip("| ").split(" | ") for row in claims["rows"].splitlines())
    return Page(
        name=path.stem,
        title=head["title"],
        source=head["source"],
        verdict=head["verdict"],
        command=command["command"],
        claims=tuple(
            Claim(says, source, ours, verdict == HOLDS) for says, source, ours, verdict in rows
        ),
        own=own["own"] if own else "",
    )


def write_index(folder: str | os.PathLike[str]) -> Path:
    """Write README.md: each page in the folder with its verdict, command and failed claims.

    Beside it, `in-a-hurry.md` has the papers in a few sentences each.
    """
    path = Path(folder) / "README.md"
    if path.exists() and not path.read_text(encoding="utf-8").startswith(HEADING):
        raise OutputError(
            "is not an index of figures, so it stays as it is",
            path=str(path),
            remedy="choose another --out for the index to be written",
        )
    found = [Path(folder) / f"{name}.md" for name in FIGURES]
    pages = [read_page(page) for page in found if page.exists()]
    sections = [
        HEADING,
        "Each page compares our numbers with the paper's and with those of an independent "
        "implementation. The numbers are in the CSV file of the same name. "
        f"[In a hurry]({BRIEF}): what each paper claims, what we found, and what ours adds.",
        _count_claims(pages),
        table(
            ("figure", "what it shows", "verdict", "command"),
            (
                (
                    f"[{page.name}]({page.name}.md)",
                    f"{page.title}; {page.source}",
                    page.verdict[:1].lower() + page.verdict[1:],
                    f"`{page.command} --out docs/papers`",
                )
                for page in pages
            ),
        ),
        "## Where we differ",
        _list_misses(pages),
    ]
    brief = describe_papers(
        {page.name: page.claims for page in pages},
        {page.name: page.own for page in pages if page.own},
        {
            paper: f"{sum(claim.holds for claim in claims)} of {len(claims)} claims hold"
            for paper, claims in _group_claims(pages).items()
        },
    )
    with replace_file(path.with_name(BRIEF)) as file:
        file.write(brief.encode())
    with replace_file(path) as file:
        file.write(("\n\n".join(sections) + "\n").encode())
    return path


def _group_claims(pages: list[Page]) -> dict[str, list[Claim]]:
    papers: dict[str, list[Claim]] = defaultdict(list)
    for page in pages:
        papers[page.paper].extend(page.claims)
    return papers


def _count_claims(pages: list[Page]) -> str:
    papers = _group_claims(pages)
    papers["all"] = [claim for page in pages for claim in page.claims]
    return table(
        ("paper", "claims", "of these hold"),
        (
            (sentence_case(paper), str(len(claims)), str(sum(claim.holds for claim in claims)))
            for paper, claims in papers.items()
        ),
    )


def _list_misses(pages: list[Page]) -> str:
    missed = [
        f"- [{page.name}]({page.name}.md): {claim.says} ({claim.source}). Ours: {claim.ours}."
        for page in pages
        for claim in page.claims
        if not claim.holds
    ]
    return "\n".join(missed) if missed else "Nowhere: every claim checked holds."
