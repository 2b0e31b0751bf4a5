"""Render templates into self-contained pages, with Jinja2 and every value escaped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from distributary import __version__
from distributary.report import palette
from distributary.report.wording import number, percent, plural, shorten

if TYPE_CHECKING:  # of the extra `report`, which is imported only when a page is rendered
    from jinja2 import Environment
    from markupsafe import Markup

    Cell = str | Markup

__all__ = ["PageTable", "Tile", "draw_bar", "mark", "render_page", "show_name"]


@dataclass(frozen=True, slots=True)
class Tile:
    """A key figure at the top of a page; `mood` colours it (`good`, `bad`)."""

    title: str
    figure: str
    explained: str | Markup
    mood: str = ""


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table whose cells are text, or `Markup` from this module; the first column has names.

    `left_out` says what the table does not list. A line break in a column's title is kept.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    kind: str = ""
    left_out: str = ""


def render_page(template: str, **values: Any) -> str:
    """Fill a template; the same values give the same text."""
    from plotly.offline import get_plotlyjs

    page = _environment().get_template(template)
    return page.render(version=__version__, palette=palette, plotly=get_plotlyjs(), **values)


def show_name(text: str) -> Markup:
    """Show a user's name: shortened if too long, and isolated from text of other direction."""
    from markupsafe import Markup

    return Markup("<bdi>{}</bdi>").format(shorten(text))


def mark(text: str, badge: str, *, kind: str = "mark") -> Markup:
    """Add a badge after a text."""
    from markupsafe import Markup

    return Markup('{} <span class="{}">{}</span>').format(text, kind, badge)


def draw_bar(share: float, text: str) -> Markup:
    """Draw a bar as wide as the share, clipped to 0 to 1, followed by a text."""
    from markupsafe import Markup

    width = f"{100 * min(max(share, 0.0), 1.0):.1f}"
    return Markup('<span class="bar"><i style="width:{}%"></i></span>{}').format(width, text)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    environment = Environment(
        loader=PackageLoader("distributary.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=False,
    )
    environment.filters |= {
        "lines": lambda text: Markup("<br>").join(map(escape, text.split("\n"))),
        "number": number,
        "percent": percent,
        "plural": plural,
        "tojson": _write_json,
    }
    return environment


def _write_json(value: Any) -> Markup:
    from markupsafe import Markup

    # Only "<" can end a script element; JSON reads \u003c as the same character.
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))
