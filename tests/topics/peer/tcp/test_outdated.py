"""Of confirmations in one turn the last one of each stream is enough."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.actions import Deliver, Send
from distributary.topics.codec import Created, Taken
from distributary.topics.host import ChannelMessage
from distributary.topics.overlay.identifiers import make_peer
from distributary.topics.peer.messages import ToClient
from distributary.topics.peer.tcp.outdated import skip_outdated

FEW = st.integers(0, 2)
SAID = st.builds(Taken, FEW, st.integers(0, 9)) | st.just(Created(True))
SENDS = st.builds(
    lambda to, channel, client, said: Send(
        f"p{to}", ToClient(f"topic/{channel}", f"client/{client}", said, make_peer("root"))
    ),
    *(FEW, FEW, FEW, SAID),
)
DELIVERS = st.builds(
    lambda client, channel, said: Deliver(
        f"client/{client}", ChannelMessage(f"topic/{channel}", said), 0.0
    ),
    *(FEW, FEW, SAID),
)


def address(action: Send | Deliver) -> tuple[str, str, int | None]:
    """What an action says to whom about what, without the number."""
    if isinstance(action, Send):
        client, channel, said = action.message.client, action.message.channel, action.message
    else:
        client, channel, said = action.client, action.message.channel, action.message
    taken = said.message
    return client, channel, taken.stream if isinstance(taken, Taken) else None


@given(st.lists(SENDS, max_size=12) | st.lists(DELIVERS, max_size=12))
def test_only_confirmations_that_another_follows_are_left_out(actions: list[Send]) -> None:
    expected = [
        action
        for at, action in enumerate(actions)
        if address(action)[2] is None or address(action) not in map(address, actions[at + 1 :])
    ]
    assert [*skip_outdated(actions)] == expected
