"""Live clusters reconsider a topic that they did not take up once they or it have fallen enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distributary.machines.actions import Action, Send
from distributary.topics import (
    TAMARA,
    ClusterChannel,
    ClusterState,
    TopicChannel,
    TopicState,
    cluster,
    derive_generator,
)
from distributary.topics import topic as topics
from distributary.topics.host import ChannelMessage, TopicHost
from distributary.topics.messages import (
    Advise,
    Answer,
    Await,
    Carried,
    Dropped,
    Found,
    Join,
    Leave,
    Propose,
    Rarer,
    Refuse,
    Survey,
    TopicFlow,
)
from distributary.topics.overlay.identifiers import identifier, make_peer
from distributary.topics.peer.machine import TopicPeer
from distributary.topics.peer.messages import ToChannel
from distributary.topics.records import HostState
from distributary.topics.simulation import TopicSystem
from distributary.topics.triggers import Thresholds
from tests.topics.inspection import compute_cost
from tests.topics.peer.schedules import PARAMETERS

MEMBERS, COMMON = 30, 10
FLOW = 0.5  # of the third topic: its ten common subscribers pay for it among at most 27 members
RARE = TopicFlow("a", 0.01), TopicFlow("b", 0.01)
# No regular surveys, and nobody wins the coin: thresholds alone can bring a new estimate.
QUIET = replace(
    TAMARA, survey_every=1e9, phi=0.0, sample=1e9, prunes=False, answer_within=1.0, lock_for=5.0
)


def refuse_topic(interval: float) -> TopicSystem:
    """Thirty members of a cluster of two topics; ten follow a third, which it did not take up."""
    flows = {found.topic: found.flow for found in RARE} | {"c": FLOW}
    system = TopicSystem(replace(QUIET, interval=interval), flows, seed=1)
    for at in range(MEMBERS):
        for topic in "abc"[: 3 if at < COMMON else 2]:
            system.want(1.0, f"s{at}", topic)
    system.advise(5.0, "topic/a", Advise(RARE))
    system.run(20.0)
    (name,) = system.clusters()
    system.advise(20.0, name, Advise())
    system.run(30.0)
    assert get_carried(system) == {"a", "b"}
    assert system.simulation.sent["Refuse"] == 1
    return system


def get_carried(system: TopicSystem) -> set[str]:
    (machine,) = system.clusters().values()
    return {*machine.state.topics}


def find_no_thresholds(*given: object) -> Thresholds:
    return Thresholds(-1, -1.0)


@pytest.fixture(params=["watching", "naive"])
def is_naive(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether channels know no thresholds, so that only surveys and coins bring estimates."""
    naive: bool = request.param == "naive"
    if naive:
        for module in (cluster, topics):
            monkeypatch.setattr(module, "find_thresholds", find_no_thresholds)
    return naive


def test_a_cluster_takes_up_a_topic_once_it_has_lost_enough_members(is_naive: bool) -> None:
    system = refuse_topic(interval=3_600.0)
    for lost in range(14):
        for topic in "ab":
            system.unwant(40.0 + 10 * lost, f"s{MEMBERS - 1 - lost}", topic)
    system.run(60.0)
    assert get_carried(system) == {"a", "b"}  # two have left, which is not enough
    asked = system.simulation.sent["Survey"]
    system.run(300.0)
    assert get_carried(system) == ({"a", "b"} if is_naive else {"a", "b", "c"})
    assert system.topic("c").size == (COMMON if is_naive else 0)
    (machine,) = system.clusters().values()
    assert system.simulation.sent["Survey"] - asked <= 2 * MEMBERS  # one survey or two
    assert machine.size == MEMBERS - 14


def test_a_cluster_takes_up_a_topic_whose_events_have_become_rare(is_naive: bool) -> None:
    system = refuse_topic(interval=1.0)
    system.run(600.0)  # nobody publishes, so the mean of the last 240 intervals falls
    assert get_carried(system) == ({"a", "b"} if is_naive else {"a", "b", "c"})
    sent = system.simulation.sent
    assert (sent["Await"], sent["Rarer"]) == ((0, 0) if is_naive else (0, 1))


def test_taking_a_topic_up_later_costs_less_than_leaving_it_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watching = refuse_topic(interval=1.0)
    watching.run(600.0)
    for module in (cluster, topics):
        monkeypatch.setattr(module, "find_thresholds", find_no_thresholds)
    naive = refuse_topic(interval=1.0)
    naive.run(600.0)
    assert get_carried(naive) != get_carried(watching)
    assert compute_cost(watching) < compute_cost(naive)


# --- one message at a time -----------------------------------------------------------------------


def send_to(actions: list[Action], to: str) -> list[object]:
    return [action.message for action in actions if isinstance(action, Send) and action.to == to]


def build_cluster(members: int) -> ClusterChannel:
    machine = ClusterChannel("cluster/1/a", QUIET, derive_generator(0, "c"), ClusterState())
    machine.on_message("topic/a", Found(("a", "b")), 0.0)
    for name in "ab":
        machine.on_message(f"topic/{name}", Carried(1, 0.01, 0, 1.0, ()), 0.0)
    for at in range(members):
        machine.on_message(f"s{at}", Join(1, ("a", "b")), 0.0)
    return machine


def propose(machine: ClusterChannel, number: int = 1) -> list[Action]:
    message = Propose(number, (TopicFlow("t", FLOW),), COMMON, COMMON)
    return machine.on_message("topic/t", message, 0.0)


def test_a_cluster_that_refuses_a_topic_says_from_which_rate_on_it_would_pay() -> None:
    refuse, wait = send_to(propose(build_cluster(MEMBERS)), "topic/t")
    assert isinstance(refuse, Refuse)
    assert isinstance(wait, Await)
    assert 0.0 < wait.flow < FLOW


def test_a_burst_of_departures_brings_one_survey_at_a_time() -> None:
    machine = build_cluster(MEMBERS)
    propose(machine)
    actions = [
        action
        for at in range(15)
        for action in machine.on_message(f"s{MEMBERS - 1 - at}", Leave(2), 1.0)
    ]
    surveys = [a for a in actions if isinstance(a, Send) and isinstance(a.message, Survey)]
    assert len({a.message.number for a in surveys}) == 1
    assert len(surveys) <= MEMBERS


def test_a_refused_estimate_waits_for_a_smaller_size_than_before() -> None:
    """Else a member that comes and goes would bring a survey each time."""
    machine = build_cluster(MEMBERS)
    propose(machine)
    surveys = []
    for at in range(6):
        machine.on_message(f"s{MEMBERS - 1 - at}", Leave(2), 1.0)
        asked = machine._poll
        if asked is not None:
            surveys.append(machine.size)
            answer = Answer(asked.number, machine.state.version, ("a", "b"), ())  # not on topic t
            machine.on_message("s0", answer, 1.0)
            machine.on_timer("answers", 2.0)
        machine.on_message(f"s{MEMBERS - 1 - at}", Join(3, ("a", "b")), 3.0)
        machine.on_message(f"s{MEMBERS - 1 - at}", Leave(4), 4.0)
    assert len(surveys) == 1
    assert "t" not in machine.state.topics


def test_a_report_that_nobody_waits_for_changes_nothing() -> None:
    machine = build_cluster(3)
    assert machine.on_message("topic/t", Rarer(0.1), 1.0) == []
    with pytest.raises(TypeError):
        machine.on_message("s0", Rarer(0.1), 1.0)


def test_a_topic_forgets_clusters_that_asked_for_its_rate_long_ago() -> None:
    policy = replace(QUIET, survey_every=100.0, remember=600.0)
    machine = TopicChannel(policy, derive_generator(0, "t"), TopicState.new("t", FLOW))
    for at in range(10):
        machine.on_message(f"cluster/{at}/a", Await(0.0), 0.0)
    machine.on_message("cluster/99/a", Await(0.0), 500.0)
    machine.on_timer("rate", 599.0)
    assert len(machine._awaited) == 11
    machine.on_timer("rate", 601.0)
    assert [*machine._awaited] == ["cluster/99/a"]
    machine.on_timer("rate", 1_101.0)
    assert not machine._awaited


def test_a_topic_remembers_only_so_many_clusters_that_it_refused() -> None:
    machine = TopicChannel(QUIET, derive_generator(0, "t"), TopicState.new("t", FLOW))
    for at in range(2_000):
        machine.on_message(f"cluster/{at}/a", Await(0.0), 1.0)
    assert len(machine._awaited) == topics._MOST_AWAITED
    assert "cluster/1999/a" in machine._awaited


def test_a_report_to_a_cluster_that_has_ended_creates_none() -> None:
    host = TopicHost(QUIET, HostState(), hosts="cluster/1/a".__eq__)
    for message in (Rarer(0.1), Refuse(1), Dropped(1)):
        assert host.on_message("topic/t", ChannelMessage("cluster/1/a", message), 1.0) == []
    assert not host.clusters


def test_a_report_to_a_cluster_that_has_ended_makes_no_peer_its_root() -> None:
    peer = TopicPeer(make_peer("p0"), QUIET, PARAMETERS)
    peer.start((), 0.0)
    group = identifier("cluster/1/a")
    peer.hosting.arrive(ToChannel("cluster/1/a", "topic/t", Rarer(0.1), make_peer("p1")), 1.0)
    assert group not in peer.overlay.scribe.roots
    assert group not in peer.state.logs
    peer.hosting.arrive(ToChannel("cluster/1/a", "s0", Join(1), make_peer("p1")), 1.0)
    assert group in peer.overlay.scribe.roots  # for what it must answer, it is
