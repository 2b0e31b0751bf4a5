"""Dynamic topic clusters: one state machine per topic, per cluster and per subscriber.

Reference: T. Milo, T. Zur, E. Verbin, "Boosting Topic-Based Publish-Subscribe Systems with Dynamic
Clustering" (2007).
"""

from distributary.extras import require

require("live")  # before the imports that need it

from distributary.topics.carriage import ClusterState
from distributary.topics.cluster import ClusterChannel
from distributary.topics.names import (
    cluster_channel,
    is_cluster,
    members_of,
    topic_channel,
    topic_of,
)
from distributary.topics.policy import OURS, TAMARA, Policy, derive_generator
from distributary.topics.subscriber import Subscriber
from distributary.topics.topic import TopicChannel, TopicState

__all__ = [
    "OURS",
    "TAMARA",
    "ClusterChannel",
    "ClusterState",
    "Policy",
    "Subscriber",
    "TopicChannel",
    "TopicState",
    "cluster_channel",
    "derive_generator",
    "is_cluster",
    "members_of",
    "topic_channel",
    "topic_of",
]
