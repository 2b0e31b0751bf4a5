"""The optional parts of distributary: which packages each needs, and what to install for it.

The core plans, evaluates, matches and reads and writes files. The rest comes as extras:
`pip install 'distributary[spark]'`, `[live]`, `[report]`, `[dashboard]`, or `[all]`.
"""

from __future__ import annotations

from importlib.util import find_spec

from distributary.errors import MissingExtraError

__all__ = ["PACKAGES", "find_extra", "require"]

PACKAGES = {
    "spark": ("pyspark", "pandas"),
    "live": ("msgspec", "nats", "prometheus_client"),
    "report": ("jinja2", "markupsafe", "plotly", "PIL", "matplotlib"),
    "dashboard": ("starlette", "uvicorn", "plotly", "jinja2", "msgspec", "nats"),
}


def require(extra: str) -> None:
    """Raise `MissingExtraError` unless every package of an extra is installed."""
    for package in PACKAGES[extra]:
        if find_spec(package) is None:
            raise MissingExtraError(package, extra)


def find_extra(error: ModuleNotFoundError) -> MissingExtraError | None:
    """Name the extra that brings the missing module; None for a module that no extra brings."""
    package = (error.name or "").split(".")[0]
    for extra, packages in PACKAGES.items():
        if package in packages:
            return MissingExtraError(package, extra)
    return None
