"""A subscriber that looks at no more than a message touches misses nothing."""

from __future__ import annotations

from typing import Any

import pytest

from distributary.machines.actions import Action
from distributary.topics import OURS, Subscriber, is_cluster, topic_channel
from distributary.topics import simulation as simulation
from distributary.topics.attendance import AttendanceState
from distributary.topics.messages import Joined, Offer, Quote, TopicFlow, Want
from tests.topics.schedules import run_schedule


class Audited(Subscriber):
    """Looks at everything after each input, in plain words, and finds it in line."""

    audits = 0

    def on_message(self, sender: str, message: Any, now: float) -> list[Action]:
        actions = super().on_message(sender, message, now)
        self.audit()
        return actions

    def on_timer(self, name: str, now: float) -> list[Action]:
        actions = super().on_timer(name, now)
        self.audit()
        return actions

    def audit(self) -> None:
        Audited.audits += 1
        known = [topic for topic, wanted in self.wanted.items() if wanted.expected is not None]
        missing = {topic for topic in known if not self.comes(topic)}
        assert missing == self._uncovered
        for topic in known:
            coming = [h for h in self.on.values() if topic in h.topics]
            assert any(held.stays for held in coming), f"{topic} is not provided"
        owing = {name for name, held in self.on.items() if held.owes is not None}
        assert owing == set(self._owing)
        assert missing or not owing
        for name in self.on:
            assert not self.is_needless(name), f"{name} can be left"
        assert set(self.on.clusters) == {name for name in self.on if is_cluster(name)}

    def comes(self, topic: str, but: str = "", *, staying: bool = False) -> bool:
        return any(
            held.brings and topic in held.topics
            for name, held in self.on.items()
            if name != but and not (staying and held.parting)
        )

    def is_needless(self, name: str) -> bool:
        held = self.on[name]
        if not held.brings or held.owes is not None:
            return False
        wanted = [topic for topic in held.topics if topic in self.wanted]
        if wanted and is_cluster(name) and not held.parting:
            return False
        return all(self.comes(topic, name, staying=True) for topic in wanted)


@pytest.mark.parametrize("policy", ["tamara", "ours", "told", "hasty"])
def test_whatever_happens_a_subscriber_is_where_it_should_be(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "Subscriber", Audited)
    before = Audited.audits
    for seed in range(300, 308):
        run_schedule(seed, policy)
    assert Audited.audits > before + 1_000


def test_a_cluster_that_carries_nothing_any_more_when_it_welcomes_is_left() -> None:
    machine = Audited("s", OURS)
    machine.on_message("app", Want("t"), 0.0)
    flow = (TopicFlow("t", 1.0),)
    offer = Offer(Quote("topic/t", flow, 5.0), (Quote("cluster/1/t", flow, 1.0),), 1)
    machine.on_message(topic_channel("t"), offer, 0.0)
    machine.on_message("cluster/1/t", Joined(1, 3, (), 1.0), 0.0)
    assert machine.on["cluster/1/t"].state is AttendanceState.LEAVING
    assert machine.on["topic/t"].state is not AttendanceState.LEAVING


def test_the_work_for_one_more_topic_does_not_grow_with_their_number() -> None:
    """Counted in topics looked at, not in seconds."""
    machine = Subscriber("s", OURS)
    looked = 0
    provided = machine._ensure_covered

    def count(topic: str, now: float) -> list[Action]:
        nonlocal looked
        looked += 1
        return provided(topic, now)

    machine._ensure_covered = count  # type: ignore[method-assign]
    topics = [f"t{number}" for number in range(2_000)]
    for topic in topics:
        machine.on_message("app", Want(topic), 0.0)
        quote = Quote(topic_channel(topic), (TopicFlow(topic, 0.0),), 1.0)
        machine.on_message(quote.channel, Offer(quote, (), 1), 0.0)
    for number, topic in enumerate(topics):
        welcome = Joined(number + 1, 0, (TopicFlow(topic, 0.0),), 1.0)
        machine.on_message(topic_channel(topic), welcome, 0.0)
    assert all(machine.is_covered(topic) for topic in topics)
    assert looked <= 4 * len(topics)
