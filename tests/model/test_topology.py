"""Best paths agree everywhere, and virtual links make masks exact."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given

from distributary.model import LinkTable, Topology
from tests.model.topologies import topologies

# Nine brokers in rows of three: paths of equal delay and hops wherever one looks.
ROWS = "405387126"
GRID = Topology(
    {(ROWS[at], ROWS[at - 1]): 0.1 for at in range(9) if at % 3}
    | {(ROWS[at], ROWS[at - 3]): 0.1 for at in range(3, 9)}
)
# Two ways from a to z that take 0.6 s, the sums of which are not the same in floating point.
ROUNDED = Topology(
    {
        **{("a", "x"): 0.1, ("x", "y"): 0.2, ("y", "z"): 0.3},
        **{("a", "b"): 0.3, ("b", "c"): 0.2, ("c", "z"): 0.1},
    }
)


def trits(table: LinkTable, root: str) -> str:
    """A mask as the paper writes it."""
    return "".join("NM"[table.masks[root] >> link & 1] for link in range(len(table)))


@pytest.fixture
def slides() -> Topology:
    """The example network: publisher P1 is at A, P2 at C; the link that is crossed out is slow."""
    return Topology(
        {("A", "B"): 1.0, ("B", "C"): 1.0, ("C", "D"): 1.0, ("A", "C"): 9.0},
        {"C1": "A", "C2": "A", "C3": "B", "C4": "B", "C5": "C", "C6": "D", "C7": "D"},
    )


def test_masks_are_those_of_the_slides(slides: Topology) -> None:
    table = slides.links("C", roots=["A", "C"])
    assert [set(link.destinations) for link in table.virtual] == [{"A", "B"}, {"D"}]
    assert [link.neighbour for link in table.virtual] == ["B", "D"]
    assert table.clients == ("C5",)
    assert trits(table, "A") == "NMM"
    assert trits(table, "C") == "MMM"
    assert table.numbers == {"A": 0, "B": 0, "D": 1, "C5": 2}


def test_a_link_that_is_half_downstream_is_split() -> None:
    ring = Topology({("A", "B"): 1.0, ("B", "C"): 1.0, ("C", "D"): 1.0, ("D", "A"): 1.0})
    # A reaches B and C through B. What D publishes A passes on to B, but C gets it from D.
    assert ring.tree("A").path("C") == ("A", "B", "C")
    assert ring.tree("D").path("B") == ("D", "A", "B")
    assert ring.tree("D").path("C") == ("D", "C")
    assert [
        (link.neighbour, sorted(link.destinations), sorted(link.roots))
        for link in ring.links("A").virtual
    ] == [("B", ["C"], ["A"]), ("B", ["B"], ["A", "D"]), ("D", ["D"], ["A", "B"])]


def test_ties_go_to_fewer_hops_and_then_to_names() -> None:
    delays = {("a", "x"): 0.1, ("x", "z"): 0.2, ("a", "y"): 0.2, ("y", "z"): 0.1, ("a", "z"): 0.3}
    assert Topology(delays).tree("a").path("z") == ("a", "z")
    assert ROUNDED.tree("a").path("z") == ("a", "b", "c", "z")
    assert ROUNDED.tree("z").path("a") == ("z", "c", "b", "a")
    del delays["a", "z"]
    assert Topology(delays).tree("a").path("z") == ("a", "x", "z")
    assert Topology(delays).tree("z").path("a") == ("z", "x", "a")


@given(topologies())
def test_paths_are_shortest(topology: Topology) -> None:
    brokers = topology.brokers
    least = {(a, b): 0 if a == b else 10**18 for a in brokers for b in brokers}
    for (a, b), delay in topology.delays.items():
        least[a, b] = least[b, a] = round(delay * 1e9)
    for via in brokers:
        for a in brokers:
            for b in brokers:
                least[a, b] = min(least[a, b], least[a, via] + least[via, b])
    links = topology.delays | {(b, a): delay for (a, b), delay in topology.delays.items()}
    for a in brokers:
        for b in brokers:
            hops = pairwise(topology.tree(a).path(b))
            assert sum(round(links[hop] * 1e9) for hop in hops) == least[a, b]


@given(topologies())
@example(GRID)
@example(ROUNDED)
def test_every_tree_agrees_with_every_routing_table(topology: Topology) -> None:
    for root in topology.brokers:
        tree = topology.tree(root)
        for broker in topology.brokers:
            path = tree.path(broker)
            for at, hop in pairwise(path):
                assert topology.next_hop(at, broker) == hop
                assert hop in tree.children(at)
            for at, passed in enumerate(path):
                assert topology.tree(passed).path(broker) == path[at:]
                assert (broker in tree.downstream(passed)) == (passed != broker)


@given(topologies())
def test_virtual_links_are_downstream_as_a_whole_or_not_at_all(topology: Topology) -> None:
    for broker in topology.brokers:
        table = topology.links(broker)
        others = set(topology.brokers) - {broker}
        found = [to for link in table.virtual for to in link.destinations]
        assert sorted(found) == sorted(others)  # with every broker a root, each is once in a link
        assert {table.clients[table.numbers[c] - len(table.virtual)] for c in table.clients} == {
            client for client, home in topology.clients.items() if home == broker
        }
        for root in topology.brokers:
            downstream = topology.tree(root).downstream(broker)
            for at, link in enumerate(table.virtual):
                inside = link.destinations <= downstream
                assert inside or not link.destinations & downstream
                assert bool(table.masks[root] >> at & 1) == inside
            assert table.masks[root] >> len(table.virtual) == (1 << len(table.clients)) - 1


@given(topologies())
def test_without_cycles_a_virtual_link_is_a_link(topology: Topology) -> None:
    if len(topology.delays) == len(topology.brokers) - 1:
        for broker in topology.brokers:
            neighbours = tuple(link.neighbour for link in topology.links(broker).virtual)
            assert neighbours == topology.neighbours(broker)


def test_brokers_that_no_tree_reaches_through_here_have_no_link(slides: Topology) -> None:
    assert slides.links("B", roots=["A"]).numbers.keys() == {"C", "D", "C3", "C4"}
    assert slides.links("D", roots=["A"]).virtual == ()


@pytest.mark.parametrize(
    ("delays", "clients", "reason"),
    [
        ({}, {}, "at least one broker"),
        ({("a", "a"): 1.0}, {}, "loop"),
        ({("a", "b"): 1.0, ("b", "a"): 1.0}, {}, "a loop or a duplicate"),
        ({("a", "b"): float("nan")}, {}, "delay of nan"),
        ({("a", "b"): -1.0}, {}, "delay of -1"),
        ({("a", "b"): 1.0, ("c", "d"): 1.0}, {}, "no path from 'a' to 'c'"),
        ({("a", "b"): 1.0}, {"x": "elsewhere"}, "no path"),
        ({("a", "b"): 1.0}, {"a": "b"}, "a client and a broker"),
    ],
)
def test_what_is_no_network_is_refused(
    delays: dict[tuple[str, str], float], clients: dict[str, str], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        Topology(delays, clients)
