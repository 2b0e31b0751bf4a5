"""How many examples Hypothesis tries: some by default, and all of them with the slow tests."""

from __future__ import annotations

from hypothesis import settings

THOROUGH = "thorough"
"""The profile of `make test-all`."""


def up_to(examples: int, *, by_default: int = 100) -> settings:
    """All these examples in the thorough profile, and fewer in any other."""
    thorough = settings.get_current_profile_name() == THOROUGH
    return settings(max_examples=examples if thorough else min(examples, by_default))
