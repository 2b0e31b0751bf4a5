"""Names of channels: a topic's own channel, and clusters, for any topic name."""

from __future__ import annotations

from distributary.topics.errors import TopicNameError

__all__ = [
    "LONGEST_TOPIC",
    "check_topic",
    "cluster_channel",
    "is_channel",
    "is_cluster",
    "is_topic",
    "members_of",
    "parse_cluster_channel",
    "topic_channel",
    "topic_of",
]

LONGEST_TOPIC = 256  # bytes of UTF-8; escaped, they still fit into a line of the NATS protocol

_TOPIC, _CLUSTER, _MEMBERS = "topic/", "cluster/", "members/"


def check_topic(topic: str) -> None:
    """Raise `TopicNameError` unless this is a valid name of a topic."""
    if not topic:
        raise TopicNameError(topic, "it is empty")
    try:
        size = len(topic.encode())
    except UnicodeEncodeError:
        raise TopicNameError(topic, "it is not valid Unicode") from None
    if size > LONGEST_TOPIC:
        raise TopicNameError(topic, f"it has {size:,} bytes, more than {LONGEST_TOPIC}")


def topic_channel(topic: str) -> str:
    """The name of a topic's own channel."""
    return _TOPIC + topic


def topic_of(channel: str) -> str:
    """The topic of a topic's own channel."""
    if not channel.startswith(_TOPIC):
        raise ValueError(f"{channel!r} is not a topic's own channel")
    return channel.removeprefix(_TOPIC)


def cluster_channel(number: int, founder: str) -> str:
    """The unique name of a cluster: the founding topic, and a number that this topic assigned."""
    return f"{_CLUSTER}{number}/{founder}"


def parse_cluster_channel(cluster: str) -> tuple[int, str]:
    """The number and the founding topic in a cluster's name; the number is 0 if there is none."""
    number, _, founder = cluster.removeprefix(_CLUSTER).partition("/")
    return int(number) if number.isdecimal() else 0, founder


def is_cluster(channel: str) -> bool:
    """Whether a channel is a cluster's."""
    return channel.startswith(_CLUSTER)


def is_topic(channel: str) -> bool:
    """Whether a channel is a topic's own."""
    return channel.startswith(_TOPIC)


def is_channel(name: str) -> bool:
    """Whether a name is that of a channel and not of a client."""
    return name.startswith((_TOPIC, _CLUSTER))


def members_of(channel: str) -> str:
    """The address of all members of a channel."""
    return _MEMBERS + channel
