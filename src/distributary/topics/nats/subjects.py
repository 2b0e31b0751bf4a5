"""The subjects of topics and channels: see `machines.nats.subjects` for how names become tokens."""

from __future__ import annotations

from dataclasses import dataclass

from distributary.machines.nats.subjects import check_prefix, name_of, name_stream, token_of
from distributary.topics.names import is_cluster

__all__ = ["JOINT", "Subjects", "name_of", "token_of"]

JOINT = "joint"  # in place of a channel: for several topics


@dataclass(frozen=True, slots=True)
class Subjects:
    """The subjects of one system; systems on the same server use different prefixes.

    A client that may publish under `to` may act as any client: restrict it with the server's
    permissions.
    """

    prefix: str = "distributary"

    def __post_init__(self) -> None:
        check_prefix(self.prefix)

    @property
    def status(self) -> str:
        """The subject of requests for the service's status."""
        return f"{self.prefix}.status"

    @property
    def claim(self) -> str:
        """The subject of the claims of services."""
        return f"{self.prefix}.claim"

    @property
    def service(self) -> str:
        """The subjects of all messages to a service."""
        return f"{self.prefix}.to.*"

    @property
    def state(self) -> str:
        """The subject of the records of the service's state."""
        return f"{self.prefix}.state"

    @property
    def joint_puts(self) -> str:
        """The subject of events of several topics in one message."""
        return self.to(JOINT)

    def stream(self, what: str) -> str:
        """The name of a JetStream stream or bucket."""
        return name_stream(self.prefix, f"topics_{what}")

    def to(self, channel: str) -> str:
        """The subject of messages to a channel."""
        return f"{self.prefix}.to.{token_of(channel)}"

    def channel(self, subject: str) -> str:
        """The channel that a subject addresses."""
        return name_of(subject.rpartition(".")[2])

    def on(self, channel: str, topic: str | None = None) -> str:
        """The subject of a channel's events to its subscribers; a cluster's names the topic."""
        subject = f"{self.prefix}.on.{token_of(channel)}"
        return subject if topic is None else f"{subject}.{token_of(topic)}"

    def all_on(self, channel: str) -> str:
        """What subscribers of a channel subscribe to."""
        return f"{self.on(channel)}.*" if is_cluster(channel) else self.on(channel)

    def client(self, name: str) -> str:
        """The subject of messages to one client."""
        return f"{self.prefix}.client.{token_of(name)}"
