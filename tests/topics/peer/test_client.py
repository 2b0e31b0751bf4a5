"""A client whose peer is gone goes on at another."""

from __future__ import annotations

from distributary.topics.codec import SERVICE, Pulse
from distributary.topics.host import ChannelMessage
from distributary.topics.peer.client import ClientParameters, PeerClient
from distributary.topics.peer.messages import Neighbours
from tests.topics.peer.schedules import POLICIES

AWAY = ClientParameters().away_after


def test_a_client_tries_all_peers_that_it_knows() -> None:
    client = PeerClient("client/c", POLICIES["tamara"], ["p0", "p1", "p2"])
    client.start(0.0)
    client.on_message("p0", Neighbours(("p3", "p1", "p4")), 0.0)
    tried = [client.peer]
    for at in range(1, 6):
        client.on_timer("own beat", at * 2 * AWAY)
        tried.append(client.peer)
    assert sorted(tried[:5]) == ["p0", "p1", "p2", "p3", "p4"]
    assert tried[5] == tried[0]


def test_a_client_stays_at_a_peer_that_answers() -> None:
    client = PeerClient("client/c", POLICIES["tamara"], ["p0", "p1", "p2"])
    client.start(0.0)
    client.lost(0.0)
    pulse = ChannelMessage(SERVICE, Pulse("", False, False, 1.0))
    for at in range(1, 6):
        client.on_message("p1", pulse, at * AWAY)
        client.on_timer("own beat", at * AWAY + 0.5)
    assert client.peer == "p1"
