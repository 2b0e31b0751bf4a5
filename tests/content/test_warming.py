"""What a broker loads before it has work."""

from __future__ import annotations

import pytest

from distributary.content import COVERING_POLICIES
from distributary.content.host import BrokerHost
from distributary.content.protocol import Event, Publish
from distributary.content.warming import warm_up
from distributary.model import Attribute, AttributeKind, Schema


@pytest.mark.parametrize("kind", AttributeKind, ids=lambda kind: kind.value)
def test_warming_up_matches_events_that_crossed_a_link(
    kind: AttributeKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = Schema((Attribute("an `odd` name", kind),))
    delivered = []
    on_message = BrokerHost.on_message

    def watch(host: BrokerHost, connection: int, message: object, now: float) -> list[object]:
        actions = on_message(host, connection, message, now)
        sent = [getattr(action, "message", None) for action in actions]
        found = [each for each in sent if isinstance(each, Event)]
        delivered.extend([] if isinstance(message, Publish) else found)
        return [*actions]

    monkeypatch.setattr(BrokerHost, "on_message", watch)
    warm_up(schema, COVERING_POLICIES["merging"])
    assert delivered
    assert all(len(each.subscriptions) == 100 for each in delivered)
