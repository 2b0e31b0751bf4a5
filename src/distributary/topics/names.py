"""How channels are called: a topic's own channel, and clusters, whatever the topic's name is."""

from __future__ import annotations

from distributary.topics.errors import TopicNameError

__all__ = [
    "LONGEST_TOPIC",
    "check_topic",
    "cluster_channel",
    "founding_of",
    "is_channel",
    "is_cluster",
    "is_topic",
    "members_of",
    "topic_channel",
    "topic_of",
]

LONGEST_TOPIC = 256  # bytes of UTF-8: three times that still fits into a line of the protocol

_TOPIC, _CLUSTER, _MEMBERS = "topic/", "cluster/", "members/"


def check_topic(topic: str) -> None:
    """Raise a `TopicNameError` unless a topic can be called so."""
    if not topic:
        raise TopicNameError(topic, "it is empty")
    try:
        size = len(topic.encode())
    except UnicodeEncodeError:
        raise TopicNameError(topic, "it is not valid Unicode") from None
    if size > LONGEST_TOPIC:
        raise TopicNameError(topic, f"it has {size:,} bytes and {LONGEST_TOPIC} are the most")


def topic_channel(topic: str) -> str:
    """The name of a topic's own channel."""
    return _TOPIC + topic


def topic_of(channel: str) -> str:
    """The topic whose own channel this is."""
    if not channel.startswith(_TOPIC):
        raise ValueError(f"{channel!r} is not a topic's own channel")
    return channel.removeprefix(_TOPIC)


def cluster_channel(number: int, founder: str) -> str:
    """The name of a cluster, which nobody else gives: the founding topic's so many-th."""
    return f"{_CLUSTER}{number}/{founder}"


def founding_of(cluster: str) -> tuple[int, str]:
    """The number and the founding topic in the name of a cluster; 0 if there is no number."""
    number, _, founder = cluster.removeprefix(_CLUSTER).partition("/")
    return int(number) if number.isdecimal() else 0, founder


def is_cluster(channel: str) -> bool:
    """Whether a channel is a cluster's."""
    return channel.startswith(_CLUSTER)


def is_topic(channel: str) -> bool:
    """Whether a channel is a topic's own."""
    return channel.startswith(_TOPIC)


def is_channel(name: str) -> bool:
    """Whether a name is that of a channel, and not of a subscriber."""
    return name.startswith((_TOPIC, _CLUSTER))


def members_of(channel: str) -> str:
    """Where to send what everybody on a channel should get."""
    return _MEMBERS + channel
