"""What the channels of a simulated topic system would do, read from their states."""

from __future__ import annotations

from distributary.model.topics import Clustering
from distributary.topics.simulation import TopicSystem


def reaches(system: TopicSystem, topic: str, subscriber: str) -> bool:
    """Whether an event of the topic published now would be sent to the subscriber."""
    channel = system.topic(topic)
    if subscriber in channel.state.members:
        return True
    clusters = system.clusters()
    return any(
        name in clusters
        and subscriber in clusters[name].state.members
        and topic in {*clusters[name].state.topics, *clusters[name].state.dropping}
        for name in channel.state.clusters
    )


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
