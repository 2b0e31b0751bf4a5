"""Broker networks drawn for tests, small and full of ties."""

from __future__ import annotations

from hypothesis import strategies as st

from distributary.model import Topology

# 0.1 + 0.2 is not 0.3 in floating point, but it is the same delay.
DELAYS = ((0.1,), (0.1, 0.2, 0.3), (0.0, 1.0))


@st.composite
def topologies(draw: st.DrawFn, *, most_brokers: int = 9) -> Topology:
    """A tree or a grid, and some links more; each broker with up to two clients."""
    n = draw(st.integers(1, most_brokers))
    names = draw(st.permutations([f"b{at}" for at in range(n)]))
    edges = draw(st.one_of(_trees(n), st.just(_grid(n))))
    pairs = [(at, to) for at in range(n) for to in range(at)]
    more = draw(st.lists(st.sampled_from(pairs), max_size=3)) if pairs else []
    delay = st.sampled_from(draw(st.sampled_from(DELAYS)))
    delays = {(names[at], names[to]): draw(delay) for at, to in sorted({*edges, *more})}
    clients = {
        f"{name}.c{at}": name
        for name in names
        for at in range(draw(st.integers(0 if n > 1 else 1, 2)))
    }
    return Topology(delays, clients)


def _trees(n: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.tuples(*(st.tuples(st.just(at), st.integers(0, at - 1)) for at in range(1, n))).map(
        list
    )


def _grid(n: int) -> list[tuple[int, int]]:
    """Rows of three, the last maybe shorter: between most corners many paths are equally long."""
    beside = [(at, at - 1) for at in range(n) if at % 3]
    return beside + [(at, at - 3) for at in range(3, n)]
