"""How many examples Hypothesis tries: some by default, and all of them with the slow tests."""

from __future__ import annotations

from hypothesis import settings

THOROUGH = "thorough"
"""The profile of `make test-all`."""
MOST_BY_DEFAULT = 100


def up_to(examples: int) -> settings:
    """All these examples in the thorough profile, and no more than 100 in any other."""
    thorough = settings.get_current_profile_name() == THOROUGH
    return settings(max_examples=examples if thorough else min(examples, MOST_BY_DEFAULT))
