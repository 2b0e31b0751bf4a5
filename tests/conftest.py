from __future__ import annotations

from hypothesis import settings

# No deadline: the first call of a kernel compiles it. A failure prints how to see it again.
settings.register_profile("distributary", deadline=None, max_examples=50, print_blob=True)
settings.load_profile("distributary")
