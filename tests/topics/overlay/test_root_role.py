"""What a root that claims a group makes of the members that others know."""

from __future__ import annotations

from distributary.topics.overlay.identifiers import make_peer
from distributary.topics.overlay.messages import Members, Recovered
from distributary.topics.overlay.root_role import RootRole, find_former

PEERS = tuple(make_peer(name) for name in "abc")


def role(members: Members | None = None, proposed: Members | None = None) -> RootRole:
    found = RootRole((5, 1), 0.0)
    found.members = members or found.members
    found.proposed = proposed or found.proposed
    return found


def answer(end: int, members: Members) -> Recovered:
    return Recovered(1, (5, 1), PEERS[0], {}, members.version[0], end, members, members)


def test_nobody_is_a_former_member_of_a_group_without_copies() -> None:
    assert find_former(role()) == ()


def test_those_proposed_may_be_members_though_the_word_of_it_was_lost() -> None:
    first, second = Members(((1, 1), 0), PEERS), Members(((1, 1), 1), PEERS[:2])
    assert find_former(role(proposed=first)) == (PEERS,)
    assert find_former(role(first, second)) == (PEERS, PEERS[:2])
    assert find_former(role(second, first)) == (PEERS[:2],)
    assert find_former(role(first, first)) == (PEERS,)


def test_a_copy_without_entries_says_nothing_of_the_members_of_one_with_entries() -> None:
    """It may come from a root that could reach no copy, with a higher ballot."""
    claimed = role()
    claimed.learn_members(answer(0, Members(((4, 2), 0), PEERS[2:])))
    assert claimed.members.peers == PEERS[2:]
    claimed.learn_members(answer(7, Members(((1, 1), 0), PEERS[:2])))
    claimed.learn_members(answer(0, Members(((4, 3), 0), PEERS[2:])))
    assert claimed.members.peers == PEERS[:2]
