"""Collects who is on which channel and who wants what, as the channels know it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distributary.model import FloatArray
from distributary.model.topics import Clustering
from distributary.topics.host import TopicHost

__all__ = ["ChannelSurvey", "survey"]


@dataclass(frozen=True, slots=True)
class ChannelSurvey:
    """A clustering, the names of its subscribers and topic channels, and events per interval.

    A cluster's member wants what it last reported to need there, which may be slightly outdated.
    """

    clustering: Clustering
    flows: FloatArray
    topics: tuple[str, ...]
    subscribers: tuple[str, ...]


def survey(hosts: Sequence[TopicHost], now: float) -> ChannelSurvey:
    """Collect what all channels of these hosts know."""
    machines = {name: each for host in hosts for name, each in host.topics.items()}
    clusters = [each for host in hosts for each in host.clusters.values() if not each.finished]
    everybody = [each.state.members for each in machines.values()]
    everybody += [each.state.members for each in clusters]
    topics, names = tuple(machines), sorted(set().union(*everybody))
    row = {name: at for at, name in enumerate(names)}
    column = {machine.state.topic: at for at, machine in enumerate(machines.values())}
    found = Clustering(len(names), len(topics))
    for at, machine in enumerate(machines.values()):
        members = [row[name] for name in machine.state.members]
        found.follow(members, at)
        found.want(members, at)
    needed = defaultdict[int, list[int]](list)  # members by topic: one call for each topic
    for cluster in clusters:
        state = cluster.state
        carried = {*state.topics, *state.dropping} & column.keys()
        number = found.form([column[topic] for topic in carried])
        found.join([row[member] for member in state.members], number)
        for member, attendance in state.members.items():
            for topic in carried.intersection(attendance.views.needs):
                needed[column[topic]].append(row[member])
    for at, wanting in needed.items():
        found.want(wanting, at)
    flows = np.array([host.flow(name, now) for host in hosts for name in host.topics], float)
    return ChannelSurvey(found, flows, topics, tuple(names))
