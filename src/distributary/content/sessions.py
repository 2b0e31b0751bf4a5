"""The sessions of a broker's clients: what each may do, and what waits for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from distributary.content.attributes import show_attributes
from distributary.content.host_params import HostParams
from distributary.content.messages import Name, Publication
from distributary.content.outbox import Gap, Outbox, OutboxItem
from distributary.content.protocol import Dropped, Event, OpenSession, RequestKind, WhenFull
from distributary.machines.actions import Action, Deliver, Save
from distributary.matching import Matcher
from distributary.model import Filter, Key, Schema

__all__ = ["Session", "SessionRecord", "Sessions", "client_of", "hop_of"]

# Before a client's name inside the broker: no broker's name has a tab.
_CLIENT = "client\t"
# With more subscriptions than this a client gets a matcher of its own.
_FEW = 8


def hop_of(client: str) -> str:
    """A client's name among those of neighbours."""
    return _CLIENT + client


def client_of(hop: str) -> str:
    """The client's own name."""
    return hop.removeprefix(_CLIENT)


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What is saved of a session."""

    number: int
    lease: float
    when_full: WhenFull
    most_events: int
    most_bytes: int


@dataclass(slots=True, eq=False)
class Session:
    """A client's session; `connection` is None while the client is away."""

    client: str
    record: SessionRecord
    ephemeral: bool
    outbox: Outbox
    connection: int | None = None
    published: int = 0
    refused: tuple[int, ...] = ()  # the latest publications that were refused
    granted: int = 0  # the highest number that the client may publish
    window: int = 0  # as last told to the client
    spare_used: int = -1  # the last acknowledgement for which it has published without room
    expires: float | None = None
    is_given_up: bool = False  # it has been away for so long that no publisher waits for it
    subscriptions: dict[int, Filter] = field(default_factory=dict)
    advertisements: dict[int, Name] = field(default_factory=dict)
    settled: set[Name] = field(default_factory=set)
    names: dict[tuple[RequestKind, int], Name] = field(default_factory=dict)
    drains: bool = False  # it ends when everything has arrived and is acknowledged
    has_drained: bool = False  # everything published before has arrived
    delivered: int = 0
    _matcher: Matcher | None = None
    _numbers: dict[int, int] = field(default_factory=dict)
    _by_name: dict[Name, int] | None = None

    def subscribe(self, number: int, filter: Filter) -> None:
        """Add or replace a subscription."""
        self.subscriptions[number] = filter
        self._matcher = self._by_name = None

    def unsubscribe(self, number: int) -> None:
        """Remove a subscription."""
        self.subscriptions.pop(number, None)
        self._matcher = self._by_name = None

    def restore_statement(self, kind: str, number: int, name: Name, filter: Filter) -> None:
        """Restore a subscription or an advertisement."""
        if kind == "subscription":
            self.names["subscription", number] = name
            self.subscribe(number, filter)
        else:
            self.names["advertisement", number] = name
            self.advertisements[number] = name

    def match(self, keys: tuple[Key | None, ...], schema: Schema) -> tuple[int, ...]:
        """The numbers of the subscriptions that an event matches."""
        if len(self.subscriptions) <= _FEW:
            return tuple(n for n, each in self.subscriptions.items() if each.matches(keys))
        if self._matcher is None:
            self._matcher = Matcher(schema)
            self._numbers = {
                self._matcher.add(filter): number for number, filter in self.subscriptions.items()
            }
        return tuple(self._numbers[at] for at in self._matcher.match_keys(keys).tolist())

    def number_names(self, names: Iterable[Name]) -> tuple[int, ...]:
        """The numbers of the subscriptions with these names."""
        if self._by_name is None:
            kept = self.names.items()
            self._by_name = {name: at for (kind, at), name in kept if kind == "subscription"}
        return tuple(map(self._by_name.__getitem__, names))


class Sessions:
    """All sessions by client; takes what the broker delivers, as a `ClientSide`."""

    def __init__(self, name: str, schema: Schema, params: HostParams) -> None:
        self._name = name
        self._schema = schema
        self._params = params
        self._by_client: dict[str, Session] = {}
        self.to_send: dict[str, None] = {}  # clients whose outbox has something new
        self.overfull: dict[str, None] = {}  # clients to be disconnected
        # The names of a client's subscriptions that an event matches, if they are known already.
        self.recall_names: Callable[[tuple[Key | None, ...], str], list[Name] | None] = (
            lambda keys, hop: None
        )
        self.dropped = 0  # with sessions that ended
        self.matched = 0

    def __len__(self) -> int:
        return len(self._by_client)

    def __contains__(self, client: str) -> bool:
        return client in self._by_client

    def all(self) -> list[Session]:
        """All sessions."""
        return list(self._by_client.values())

    def get(self, client: str) -> Session | None:
        """The session of a client, or None."""
        return self._by_client.get(client)

    # --- begin and end ---------------------------------------------------------------------------

    def begin(self, client: str, number: int, asked: OpenSession) -> tuple[Session, list[Save]]:
        """Begin a session."""
        record = self._draw_up(number, asked)
        session = self._make(client, record, ephemeral=asked.ephemeral)
        return session, [] if asked.ephemeral else [Save(("session", client), record)]

    def renew(self, session: Session, asked: OpenSession) -> list[Save]:
        """Keep a session as its client asks for now; what is in the outbox stays there."""
        record = self._draw_up(session.record.number, asked)
        if record == session.record:
            return []
        session.record = record
        session.outbox.limit(record.most_events, record.most_bytes)
        return [Save(("session", session.client), record)]

    def _draw_up(self, number: int, asked: OpenSession) -> SessionRecord:
        params = self._params
        return SessionRecord(
            number,
            params.lease if asked.lease is None else min(asked.lease, params.lease),
            asked.when_full,
            min(asked.most_events or params.outbox_events, params.outbox_events),
            min(asked.most_bytes or params.outbox_bytes, params.outbox_bytes),
        )

    def restore(self, saved: Mapping[Hashable, object]) -> None:
        """Restore the sessions that were saved."""
        rows: dict[str, list[tuple[int, object]]] = {}
        for key, value in saved.items():
            match key, value:
                case ("session", str(client)), SessionRecord():
                    self._make(client, value, ephemeral=False)
                case ("outbox", str(client), int(number)), _:
                    rows.setdefault(client, []).append((number, value))
        for key, value in saved.items():
            match key, value:
                case ("published", str(client)), int(number) if client in self:
                    self._by_client[client].published = number
                case ("refused", str(client)), tuple(numbers) if client in self:
                    self._by_client[client].refused = numbers
                case ("absent", str(client)), float(expires) if client in self:
                    self._by_client[client].expires = expires
                case ("own", str(hop), str(kind), int(number)), (Name() as name, Filter() as of):
                    if session := self.get(client_of(hop)):
                        session.restore_statement(kind, number, name, of)
        for client, found in rows.items():
            if session := self.get(client):
                session.outbox.restore(found)

    def end(self, session: Session) -> list[Save]:
        """Forget a session, and everything saved of it."""
        client = session.client
        del self._by_client[client]
        self.to_send.pop(client, None)
        self.overfull.pop(client, None)
        self.dropped += len(session.outbox) + session.outbox.dropped
        if session.ephemeral:
            return []
        kinds = ("session", "published", "refused", "absent")
        return [*(Save((kind, client), None) for kind in kinds), *session.outbox.clear()]

    def _make(self, client: str, record: SessionRecord, *, ephemeral: bool) -> Session:
        key = None if ephemeral else client
        outbox = Outbox(key, record.most_events, record.most_bytes)
        session = self._by_client[client] = Session(client, record, ephemeral, outbox)
        return session

    # --- deliveries ------------------------------------------------------------------------------

    def has_room(self, hop: str) -> bool:
        """Whether a client can take another publication, perhaps in place of an older one."""
        session = self.get(client_of(hop))
        return (
            session is None
            or session.record.when_full != "wait"
            or session.is_given_up
            or session.outbox.has_room
        )

    def take(self, delivered: Deliver) -> list[Action]:
        """Put a publication into its client's outbox, by the client's policy if that is full."""
        session = self.get(client_of(delivered.client))
        publication = delivered.message
        if session is None or not isinstance(publication, Publication):
            return []
        keys = publication.event.keys
        names = self.recall_names(keys, delivered.client)
        numbers = (
            session.match(keys, self._schema) if names is None else session.number_names(names)
        )
        if not numbers:
            return []  # the subscription has ended while the publication waited for room
        saves: list[Action] = []
        if not session.outbox.has_room:
            if session.record.when_full == "disconnect":
                self.overfull[session.client] = None
                return []
            while not session.outbox.has_room and (dropped := session.outbox.drop_oldest()):
                saves += dropped
        saves += session.outbox.add(OutboxItem(publication, numbers))
        self.to_send[session.client] = None
        self.matched += 1
        return saves

    def take_frames(self, session: Session) -> list[Event | Dropped]:
        """What is to be sent to a client now."""
        if session.connection is None:
            return []
        window = min(self._params.deliveries, max(1, session.record.most_events // 2))
        found = [self._show(number, item) for number, item in session.outbox.take(window)]
        session.delivered += sum(isinstance(each, Event) for each in found)
        return found

    def _show(self, number: int, item: OutboxItem | Gap) -> Event | Dropped:
        if isinstance(item, Gap):
            reason = f"more than the client takes were waiting for it at broker {self._name!r}"
            return Dropped(item.first, number, reason)
        publication = item.publication
        event = publication.event
        return Event(
            number,
            item.subscriptions,
            publication.advertisement.broker,
            event.publisher,
            publication.number,
            show_attributes(event.keys, self._schema),
            event.payload,
            event.published,
        )
