"""The pages: their names, and their shells, which scripts fill with live data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from jinja2 import Environment, PackageLoader, StrictUndefined

from distributary import __version__
from distributary.dashboard.assets import Assets

__all__ = ["PAGES", "Page", "PageShells"]


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its path, its name in the navigation, and what it answers."""

    path: str
    name: str
    lead: str

    @property
    def key(self) -> str:
        """The name of its template and of its script."""
        return self.name.casefold()


PAGES = (
    Page("/", "Now", "What receivers get, what they throw away, and what needs a look."),
    Page("/plan", "Plan", "Where every flow travels, and how full the groups are."),
    Page("/receivers", "Receivers", "Who wants what, and who pays for what others want."),
    Page("/changes", "Changes", "What was changed, why, and whether it kept its promise."),
    Page("/pipeline", "Pipeline", "The Spark stream that plans: what it reads, and how fast."),
    Page("/topics", "Topics", "Topics that share channels, and what that saves."),
    Page("/brokers", "Brokers", "The network of content brokers, its tables and queues."),
)


class PageShells:
    """The HTML of all pages, which has no data in it."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets

    @cached_property
    def _environment(self) -> Environment:
        return Environment(
            loader=PackageLoader("distributary.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def render(self, page: Page) -> str:
        """Render a page; the same for every reader."""
        return self._environment.get_template(f"{page.key}.html").render(
            page=page,
            pages=PAGES,
            static=f"/static/{self._assets.digest}",
            style_ids=self._assets.style_ids,
            version=__version__,
        )
