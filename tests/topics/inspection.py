"""What the channels of a simulated topic system would do, read from their states."""

from __future__ import annotations

from distributary.model.topics import Clustering
from distributary.topics import ClusterChannel
from distributary.topics.simulation import TopicSystem


def collect_reached(
    system: TopicSystem, clusters: dict[str, ClusterChannel] | None = None
) -> dict[str, set[str]]:
    """By topic: the subscribers that an event published now would be sent to."""
    clusters = system.clusters() if clusters is None else clusters
    reached: dict[str, set[str]] = {}
    for topic in system.flows:
        state = system.topic(topic).state
        reached[topic] = {*state.members}
        for name in state.clusters:
            if name in clusters:
                cluster = clusters[name].state
                if topic in cluster.topics or topic in cluster.dropping:
                    reached[topic].update(cluster.members)
    return reached


def build_clustering(system: TopicSystem) -> Clustering:
    """The current membership of all channels, as the channels see it."""
    topics, names = list(system.flows), sorted(system.subscribers)
    row = {name: at for at, name in enumerate(names)}
    found = Clustering(len(names), len(topics))
    for at, topic in enumerate(topics):
        found.follow([row[name] for name in system.topic(topic).state.members], at)
    for machine in system.clusters().values():
        carried = {*machine.state.topics, *machine.state.dropping}
        cluster = found.form([topics.index(topic) for topic in carried])
        found.join([row[name] for name in machine.state.members], cluster)
    for name, client in system.subscribers.items():
        for topic in client.wanted:
            if client.is_covered(topic):
                found.want(row[name], topics.index(topic))
    return found


def compute_cost(system: TopicSystem) -> float:
    """OC with the present rates."""
    machines = [*system.clusters().values(), *(system.topic(name) for name in system.flows)]
    channels = [machine.measure() for machine in machines]
    prices = system.policy.prices
    return sum(
        prices.maintain(each.size)
        + (prices.associate(each.topics) if each.topics else 0.0)
        + each.flow * (prices.notify + prices.disseminate(each.size))
        for each in channels
    )
