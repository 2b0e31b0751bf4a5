"""Decides which message flows travel together, over which few channels, to which receivers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from distributary.api import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """Import what is offered when it is first asked for.

        A command that is interrupted while NumPy and Numba are loading must be able to answer, so
        it has to run before they are.
        """
        api = import_module("distributary.api")
        if name in globals():  # a room, which is here once anything of it was imported
            return globals()[name]
        if name == "__all__" or name in api.__all__:
            return getattr(api, name)
        raise AttributeError(f"module 'distributary' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *import_module("distributary.api").__all__})
