"""What a receiver knows of a publisher's directory: where the flows that it wants travel.

The receiver asks for the blocks that have its flows. It waits a random time before, and takes every
block that it hears: many receivers that start together ask once between them. From then on it
follows the journal. A block says which record it was made after, so that records which are in it
already are not applied twice, and a block that is older than the journal is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from distributary.delivery import _wire_kernels as kernels
from distributary.delivery.directory_wire import (
    Block,
    CancelRecord,
    FlowClaim,
    FlowEntry,
    LeaveRecord,
    MarkRecord,
    Place,
    ReadyRecord,
    Record,
    ReleaseRecord,
    RouteRecord,
    SwitchRecord,
    block_of,
    flow_key,
)
from distributary.delivery.gaps import draw_back_off
from distributary.delivery.receiver_params import ReceiverParams
from distributary.model import IntArray

__all__ = ["DirectoryView"]

_NEVER = float("inf")
_MOST_PARTS = 65_536  # of blocks that are not complete
_MOST_PLACES = 1_024  # of a flow


@dataclass(slots=True)
class _Lookup:
    """A block that is asked for, next at the time `at`."""

    at: float
    asked: int = 0


@dataclass(slots=True)
class _Parts:
    """The parts of a block that came so far, as of one record, and the wanted entries in them."""

    as_of: int
    parts: int
    asked: int  # how often the block had been asked for when the last part came
    came: set[int] = field(default_factory=set)
    entries: dict[bytes, FlowEntry] = field(default_factory=dict)


class DirectoryView:
    """Routes of wanted flows, as one publisher's directory has them."""

    def __init__(
        self,
        receiver: int | None,
        params: ReceiverParams,
        rng: np.random.Generator,
        counts: IntArray,
    ) -> None:
        """`receiver` is the key of the receiver; places for others alone are left out.

        None: no place is left out.
        """
        self._receiver = receiver
        self._params = params
        self._rng = rng
        self._counts = counts
        self.routes: dict[str, FlowEntry | None] = {}  # known ones; None: the plan lacks the flow
        self.record = 0  # the last record of the journal that was taken
        self.latest = 0  # the last record that the journal, or a block, told of
        self._blocks = 0  # how many there are; 0 before the first announcement
        self._name_of: dict[bytes, str] = {}
        self._keys_in: dict[int, set[bytes]] = {}  # wanted flows by their block
        self._as_of: dict[str, int] = {}
        self._released: dict[str, FlowClaim] = {}  # flows that go with the next switch
        self._stale: set[str] = set()  # flows whose routes missed a record
        self._lookups: dict[int, _Lookup] = {}
        self._parts: dict[int, _Parts] = {}
        self._n_parts = 0  # that came of all blocks in `_parts`

    # --- what the receiver wants ------------------------------------------------------------------

    def want(self, names: Iterable[str], now: float) -> None:
        """Look these flows up, and follow where they travel."""
        for name in names:
            key = flow_key(name)
            self._name_of[key] = name
            self._index(key)
            if name not in self.routes:
                self._look_up(key, now)

    def hasten(self, names: Iterable[str], now: float) -> None:
        """Ask for these flows without waiting whether others do."""
        for name in names:
            lookup = None
            if self._blocks and name not in self.routes:
                lookup = self._lookups.get(block_of(flow_key(name), self._blocks))
            if lookup is not None and not lookup.asked:
                lookup.at = now

    def forget(self, names: Iterable[str]) -> None:
        """Stop following these flows."""
        for name in names:
            key = flow_key(name)
            self._name_of.pop(key, None)
            if self._blocks:
                self._keys_in.get(block_of(key, self._blocks), set()).discard(key)
            self.routes.pop(name, None)
            self._as_of.pop(name, None)
            self._released.pop(name, None)
            self._stale.discard(name)
        self._drop_needless()

    @property
    def complete(self) -> bool:
        """Whether every wanted flow was looked up."""
        return bool(self._blocks) and len(self.routes) == len(self._name_of) and not self._stale

    # --- what comes from the publisher ------------------------------------------------------------

    def begin(self, blocks: int, record: int, now: float) -> None:
        """Take the publisher's first announcement: its blocks, and the journal's last record."""
        self.record = self.latest = record
        self.resize(blocks, now)

    def resize(self, blocks: int, now: float) -> None:
        """Take another number of blocks, from an announcement."""
        if blocks == self._blocks:
            return
        self._blocks = blocks
        self._keys_in.clear()
        self._lookups.clear()
        self._drop_all_parts()
        for key, name in self._name_of.items():
            self._index(key)
            if name not in self.routes or name in self._stale:
                self._look_up(key, now)

    def start_over(self, record: int, now: float) -> None:
        """Look everything up again, since records up to this one are lost; keep the routes."""
        self.record = self.latest = record
        self._drop_all_parts()
        self._stale.update(self.routes)
        for key in self._name_of:
            self._look_up(key, now)

    def has_answered(self, name: str) -> bool:
        """Whether it is known where a flow travels, and nothing newer was told of."""
        return name in self.routes and name not in self._stale

    def awaits(self, block: int) -> bool:
        """Whether a block is being looked up."""
        return block in self._lookups

    def look_up_again(self, names: Iterable[str], now: float) -> None:
        """Look flows up again, since nothing comes from where they are said to travel."""
        for name in names:
            if name in self.routes:
                self._stale.add(name)
                self._look_up(flow_key(name), now)

    def take_block(self, block: Block) -> set[str]:
        """Take a part of a block; returns the wanted flows whose routes changed with it."""
        lookup = self._lookups.get(block.block)
        if lookup is None or block.as_of < self.record:
            return set()  # nobody asked, or it is older than what the journal told
        parts = self._parts.get(block.block)
        if parts is None or (parts.as_of, parts.parts) != (block.as_of, block.parts):
            # An older one is late, unless the newer one never became complete: it may be forged.
            if parts is not None and block.as_of < parts.as_of and lookup.asked <= parts.asked:
                return set()
            self._drop_parts(block.block)
            parts = self._parts[block.block] = _Parts(block.as_of, block.parts, lookup.asked)
        if block.part not in parts.came:
            self._keep_part(parts, block, lookup.asked)
        if len(parts.came) < parts.parts:
            return set()
        del self._lookups[block.block]
        self._drop_parts(block.block)
        self.latest = max(self.latest, block.as_of)
        changed = set()
        for key in self._keys_in.get(block.block, ()):
            name = self._name_of[key]
            self._as_of[name] = block.as_of
            self._stale.discard(name)
            if self._note(name, parts.entries.get(key)):
                changed.add(name)
        return changed

    def _keep_part(self, parts: _Parts, block: Block, asked: int) -> None:
        """Keep the wanted entries of a part; forget another block's parts if there are too many."""
        parts.came.add(block.part)
        parts.asked = asked
        self._n_parts += 1
        if self._n_parts > _MOST_PARTS:
            self._counts[kernels.OVER_LIMIT] += 1
            self._drop_parts(next(number for number in self._parts if number != block.block))
        wanted = self._keys_in.get(block.block, ())
        for entry in block.entries:
            if entry.key in wanted:
                parts.entries[entry.key] = self._join(parts.entries.get(entry.key), entry)

    def _drop_parts(self, block: int) -> None:
        """Forget the parts of a block; what is still wanted of it is asked for again."""
        parts = self._parts.pop(block, None)
        self._n_parts -= 0 if parts is None else len(parts.came)

    def _drop_all_parts(self) -> None:
        self._parts.clear()
        self._n_parts = 0

    def _join(self, before: FlowEntry | None, entry: FlowEntry) -> FlowEntry:
        """An entry with the places of the one that it continues; without those of others alone."""
        places = self._usable(() if before is None else before.places, entry.places)
        upcoming = None if before is None else before.upcoming
        if entry.upcoming is not None:
            upcoming = self._usable(upcoming or (), entry.upcoming)
        return entry._replace(places=places, upcoming=upcoming, continued=False)

    def _usable(self, known: tuple[Place, ...], more: tuple[Place, ...]) -> tuple[Place, ...]:
        """The places at which this receiver can take a flow, in the order of their numbers."""
        here = self._receiver
        mine = {
            place
            for place in more
            if place.group is not None or here is None or place.receiver == here
        }
        found = sorted(mine.union(known), key=lambda place: place.stream)
        self._counts[kernels.OVER_LIMIT] += len(found[_MOST_PLACES:])
        return tuple(found[:_MOST_PLACES])

    def take_record(self, number: int, record: Record) -> set[str]:
        """Take the journal's next record; returns the wanted flows whose routes changed with it."""
        self.record = number
        self.latest = max(self.latest, number)
        match record:
            case RouteRecord(_, entry):
                name = self._name_of.get(entry.key, "")
                if name not in self.routes or name in self._stale or self._as_of[name] >= number:
                    return set()
                return {name} if self._note(name, self._announce(name, entry)) else set()
            case SwitchRecord():
                return self._settle(number, switched=True)
            case CancelRecord():
                return self._settle(number, switched=False)
            case ReleaseRecord(_, entry):
                name = self._name_of.get(entry.key, "")
                if name in self.routes and entry.claim is not None:
                    self._released[name] = entry.claim
                return set()
            case LeaveRecord():
                return self._drop_all(number)
            case ReadyRecord() | MarkRecord():
                return set()

    def _announce(self, name: str, entry: FlowEntry) -> FlowEntry:
        """The route with what a record says of the upcoming version."""
        known = self.routes[name]
        before = (known.upcoming or ()) if known is not None and entry.continued else ()
        upcoming = self._usable(before, entry.upcoming or ())
        places = () if known is None else known.places
        claim = known.claim if known is not None and known.places else entry.claim
        return FlowEntry(entry.key, entry.number, places, upcoming, claim=claim)

    def _settle(self, number: int, *, switched: bool) -> set[str]:
        """Let the upcoming routes hold, or drop them."""
        changed = set()
        for name, route in self.routes.items():
            if route is None or route.upcoming is None:
                continue
            if name in self._stale or self._as_of[name] >= number:
                continue
            places = route.upcoming if switched else route.places
            self._note(name, self._end_change(name, route, places))
            changed.add(name)
        self._released.clear()
        return changed

    def _drop_all(self, number: int) -> set[str]:
        """Note that the publisher carries nothing any more."""
        changed = set()
        for name, route in self.routes.items():
            if route is not None and name not in self._stale and self._as_of[name] < number:
                self._note(name, self._end_change(name, route, ()))
                changed.add(name)
        self._released.clear()
        return changed

    def _end_change(
        self, name: str, route: FlowEntry, places: tuple[Place, ...]
    ) -> FlowEntry | None:
        """The route at these places alone; without any, how its numbers go on elsewhere."""
        claim = route.claim if places else self._released.get(name)
        if not places and claim is None:
            return None
        return route._replace(places=places, upcoming=None, claim=claim, released=not places)

    def _note(self, name: str, route: FlowEntry | None) -> bool:
        """Note a route; returns whether it is another than before.

        A flow that travels to other receivers alone has none.
        """
        if route is not None and not (route.places or route.upcoming or route.released):
            route = None
        if name in self.routes and self.routes[name] == route:
            return False
        self.routes[name] = route
        return True

    # --- asking -----------------------------------------------------------------------------------

    def due(self, now: float) -> list[int]:
        """The blocks to ask for now; notes that they were asked for."""
        found = []
        for block, lookup in self._lookups.items():
            if lookup.at <= now:
                found.append(block)
                wait = self._params.repair_wait * 2 ** min(lookup.asked, 30)
                lookup.asked += 1
                lookup.at = now + min(wait, self._params.longest_wait) + self._draw()
        return found

    def next_at(self) -> float:
        """When the next block is due."""
        if not self._lookups:  # the usual case
            return _NEVER
        return min(lookup.at for lookup in self._lookups.values())

    def _index(self, key: bytes) -> None:
        if self._blocks:
            self._keys_in.setdefault(block_of(key, self._blocks), set()).add(key)

    def _look_up(self, key: bytes, now: float) -> None:
        if self._blocks:
            block = block_of(key, self._blocks)
            self._lookups.setdefault(block, _Lookup(now + self._draw()))
            self._drop_parts(block)  # those that came were read without a look at this flow

    def _drop_needless(self) -> None:
        """Stop asking for blocks that no wanted flow needs any more."""
        if not self._lookups:
            return
        needed = {
            block_of(key, self._blocks)
            for key, name in self._name_of.items()
            if name not in self.routes or name in self._stale
        }
        self._lookups = {
            block: lookup for block, lookup in self._lookups.items() if block in needed
        }
        for block in [block for block in self._parts if block not in needed]:
            self._drop_parts(block)

    def _draw(self) -> float:
        return draw_back_off(self._params.back_off, self._params.receivers, self._rng)
