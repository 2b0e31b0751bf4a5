"""A control plane that only pretends: seeded, alive, and obedient."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from distributary.control.errors import ControlRefusedError
from distributary.control.requests import Done
from distributary.control.status import (
    Alarm,
    AuditEntry,
    Block,
    ControlStatus,
    FlowMove,
    FlowPath,
    GroupView,
    HistoryPoint,
    Kind,
    PlanView,
    ProposalStatus,
    PublisherStatus,
    ReceiverStatus,
    ReceiverView,
    ServiceStatus,
    SessionView,
    StreamStatus,
    VersionStatus,
    Waste,
)
from distributary.errors import LiveError

HOSTILE = "<script>alert('receiver')</script>"
HOSTILE_NAMES = (
    HOSTILE,
    '"><img src=x onerror=alert(1)>',
    "{{7*7}} ${7*7} <%= 7*7 %>",
    "abc\u202egnp.exe",  # from here on right to left
    "מסחר שוטף",
    "W" * 200,
    "a name with\nlines\tand\x07bells",
    "🦀" * 30,
    " ",
    "'; DROP TABLE receivers; --",
    "javascript:alert(1)",
    "&lt;b&gt;bold&amp;",
)
DESKS = ("rates", "equities", "fx", "energy", "options", "credit")


class FakeControl:
    """Twelve receivers on a trading floor by default, one with a hostile name and one gone.

    `hostile` gives every name and text the worst characters. `more_versions` come before the
    seven that there are.
    """

    def __init__(
        self,
        seed: int = 7,
        *,
        receivers: int = 12,
        groups: int = 24,
        flows: int = 214,
        more_versions: int = 0,
        empty: bool = False,
        hostile: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._random = np.random.default_rng(seed)
        self._clock = clock
        self._began = clock() - 3_600
        self.empty = empty
        self.hostile = hostile
        self._flows = flows
        self._more_versions = more_versions
        self.asked: Counter[str] = Counter()
        self.away = ""  # what is wrong, if it does not answer
        self.slow_s = 0.0
        self.pause = (math.inf, math.inf)  # when nothing was measured
        self.mode = "manual"
        self.names = self._name_receivers(receivers)
        self._wants = self._random.integers(flows // 27, flows // 4, len(self.names))
        self._shares = self._random.dirichlet(np.ones(len(self.names)) * 3)
        self._groups = groups
        self.pins: dict[str, int] = {}
        self.limits = "" if empty else "[groups]\nmembers = 10\nrate = 900\n"
        self.audit: list[AuditEntry] = []
        self.versions: list[VersionStatus] = []
        self.proposal: ProposalStatus | None = None
        if not empty:
            self._make_history()
            self.propose()

    # --- looking ----------------------------------------------------------------------------------

    async def status(self) -> ControlStatus:
        await self._answer("status")
        now = self._clock()
        receivers = [self._describe(i, now) for i in range(len(self.names))]
        return ControlStatus(
            prefix="distributary",
            now=now,
            service=ServiceStatus("control on trade-1, process 4711", self._began, 1, 41.5),
            mode=self.mode,  # type: ignore[arg-type]
            tolerance=0.5,
            group_limit=self._groups,
            session_limit=3 * self._groups,
            limits=self.limits,
            pins=self.pins,
            force=self.versions[-1] if self.versions else None,
            proposal=self.proposal,
            waste=self._measure(now),
            publishers=self._list_publishers(now),
            receivers=[] if self.empty else receivers,
            stream=self._describe_stream(now),
            alarms=[] if self.empty else self._list_alarms(now),
            predicted=None if self.empty else self._predict(now),
            kept=self._list_kept(),
        )

    async def history(self, after: float) -> list[HistoryPoint]:
        await self._answer("history")
        now = self._clock()
        if self.empty:
            return []
        moments = (now - back for back in range(600, -1, -1))
        return [
            HistoryPoint(at, self._version_at(at).version, self._measure(at), self._predict(at))
            for at in moments
            if at > after and not self.pause[0] < at < self.pause[1]
        ]

    async def changes(self, most: int) -> list[AuditEntry]:
        await self._answer("changes")
        return self.audit[::-1][:most]

    async def plan_view(self) -> PlanView:
        await self._answer("plan")
        if not self.versions:
            raise ControlRefusedError(
                "there is no plan in force yet; wait for receivers and publishers"
            )
        random = np.random.default_rng(3)
        return PlanView(self.versions[-1].version, [self._group(g, random) for g in self._numbers])

    async def flow(self, name: str) -> FlowPath:
        await self._answer("flow")
        if self.empty or not (self.hostile or name.startswith("EQ.")):
            raise ControlRefusedError(f"flow {name!r} is not in the plan, and nobody wants it")
        return FlowPath(
            flow=name,
            session=17,
            group=5,
            address="239.192.77.5",
            rate=41.7,
            wanted_by=sorted(self.names[:4]),
            dropped_first_by=sorted(self.names[4:6]),
            dropped_second_by=sorted(self.names[6:7]),
            pinned=self.pins.get(name),
        )

    async def receiver(self, name: str) -> ReceiverView:
        await self._answer("receiver")
        if self.empty or name not in self.names:
            raise ControlRefusedError(f"no receiver is called {name!r}")
        now, number = self._clock(), self.names.index(name)
        status = self._describe(number, now)
        history = [
            Block(at, self._scale(self._measure(at), number), status.groups, 0, status.cpu_share)
            for at in (now - back for back in range(300, -1, -5))
        ]
        wanted = int(self._wants[number])
        flows = [self._name_flow(number, each) for each in range(min(wanted, 100))]
        return ReceiverView(status, flows, [2, 3, 5, 8, 13], history)

    # --- acting -----------------------------------------------------------------------------------

    async def approve(self, number: int, by: str) -> Done:
        await self._answer("approve")
        if self.proposal is None or self.proposal.number != number:
            raise ControlRefusedError(f"proposal {number} is gone; look at the newest one")
        found, self.proposal = self.proposal, None
        why = f"saves {found.saves_per_hour:,.0f} messages an hour"
        self._note(by, "approved", why)
        return self._decide("planned", by, why, found.moves, found.after)

    async def reject(self, number: int, why: str, by: str) -> Done:
        await self._answer("reject")
        if self.proposal is None or self.proposal.number != number:
            raise ControlRefusedError(f"proposal {number} is gone; look at the newest one")
        self.proposal = None
        self._note(by, "rejected", why)
        return Done(f"proposal {number} is rejected", self.versions[-1].version)

    async def rollback(self, version: int | None, by: str) -> Done:
        await self._answer("rollback")
        if version is None:
            version = self.versions[-2].version
        found = next((each for each in self.versions if each.version == version), None)
        if found is None or version not in self._list_kept():
            raise ControlRefusedError(f"version {version} is not kept any more; choose a later one")
        return self._decide("rolled back", by, f"back to version {version}", 31, found.predicted)

    async def pin(self, flow: str, group: int | None, by: str) -> Done:
        await self._answer("pin")
        if group is not None and group >= self._groups:
            raise ControlRefusedError(
                f"there is no group {group}; the last one is {self._groups - 1}"
            )
        self.pins.pop(flow, None)
        if group is not None:
            self.pins[flow] = group
        return self._decide(
            "pinned", by, f"{flow} to group {group}", 1, self.versions[-1].predicted
        )

    async def set_mode(self, mode: str, by: str) -> Done:
        await self._answer("mode")
        self.mode = mode
        self._note(by, "mode", mode)
        return Done(f"proposals: {mode}", self.versions[-1].version)

    def propose(self) -> None:
        """Have a proposal that waits."""
        after = Waste(812.0, 96.0, 31.0)
        moved = self._list_moves(max(23, self._flows // 50))
        moved[1] = msgspec.structs.replace(moved[1], from_session=None, from_group=None)
        before = self.versions[-1].predicted or after
        self.proposal = ProposalStatus(
            number=41,
            at=self._clock() - 75,
            saves_per_hour=431_280.0,
            moves=len(moved),
            receivers_touched=9,
            moved=moved,
            before=before,
            after=after,
            touched=sorted(self.names)[:9],
        )

    # --- pretending -------------------------------------------------------------------------------

    @property
    def _numbers(self) -> range:
        return range(self._groups)

    async def _answer(self, what: str) -> None:
        self.asked[what] += 1
        await asyncio.sleep(self.slow_s)
        if self.away:
            raise LiveError(self.away)

    def _name_flow(self, one: int, other: int) -> str:
        if self.hostile:
            return f"{HOSTILE_NAMES[one % len(HOSTILE_NAMES)]}{other}"
        return f"EQ.{one:02}.{other:03}"

    def _list_moves(self, count: int) -> list[FlowMove]:
        return [
            FlowMove(self._name_flow(i, 7 * i), i % 9, i % 4, (i + 3) % 9, (i + 1) % 4, 9 - i % 7)
            for i in range(count)
        ]

    def _list_kept(self) -> list[int]:
        """The last twenty versions before the one in force, and those that moved flows."""
        return [
            each.version
            for each in self.versions[:-1]
            if each.kind not in ("first", "placed") or each.version > len(self.versions) - 20
        ]

    def _name_receivers(self, count: int) -> list[str]:
        if self.hostile:
            return list(HOSTILE_NAMES[:count])
        names = [f"{DESKS[i % len(DESKS)]}-{i // len(DESKS) + 1:02}" for i in range(count)]
        return [*names[: max(count - 1, 0)], HOSTILE] if count else []

    def _make_history(self) -> None:
        now = self._clock()
        steps: list[tuple[float, Kind, str, int, float]] = [
            (3_500, "first", "the first plan of 214 flows", 0, 410.0),
            (2_900, "planned", "saves 298,000 messages an hour", 37, 302.0),
            (2_100, "placed", "energy-02 wants EQ.07.031", 0, 305.0),
            (1_500, "planned", "saves 266,400 messages an hour", 29, 231.0),
            (800, "planned", "saves 51,000 messages an hour", 12, 214.0),
            (740, "rolled back", "measured 398.2 against 214.0 predicted, limit 326.0", 12, 231.0),
            (420, "placed", "fx-01 wants EQ.02.014", 0, 246.0),
        ]
        for older in range(self._more_versions, 0, -1):
            why = f"flow 'EQ.{older % 90:02}.014' came to be wanted"
            steps.insert(0, (3_500 + 60 * older, "placed", why, 0, 400.0 + older % 17))
        for back, kind, why, moves, dropped in steps:
            if self.hostile:
                why = HOSTILE_NAMES[int(back) % len(HOSTILE_NAMES)]
            self._decide(kind, "control", why, moves, _split(dropped), at=now - back)
            noise = float(self._random.normal(1.02, 0.03))
            measured = _split(398.2 if back == 800 else dropped * noise)
            self._judge(measured, now - back + 13)

    def _decide(
        self,
        kind: Kind,
        by: str,
        why: str,
        moves: int,
        predicted: Waste | None,
        at: float | None = None,
    ) -> Done:
        at = self._clock() if at is None else at
        number = self.versions[-1].version + 1 if self.versions else 1
        self.versions.append(
            VersionStatus(
                version=number,
                kind=kind,
                at=at,
                by=by,
                why=why,
                flows=self._flows,
                sessions=int(2.5 * self._groups),
                groups=self._groups,
                moves=moves,
                predicted=predicted,
            )
        )
        moved = self._list_moves(0 if kind == "first" else min(moves, 20))
        self._note(by, "in force", why, at, number, moves, predicted, kind=kind, moved=moved)
        return Done(f"version {number} is in force", number)

    def _judge(self, measured: Waste, at: float) -> None:
        found = msgspec.structs.replace(self.versions[-1], measured=measured)
        self.versions[-1] = found
        assert found.predicted is not None
        is_kept = measured.dropped_first < 1.5 * found.predicted.dropped_first
        why = "kept its promise" if is_kept else "worse than its promise"
        self._note(
            "control",
            "judged",
            why,
            at,
            found.version,
            predicted=found.predicted,
            measured=measured,
            lost=0,
        )

    def _note(
        self,
        who: str,
        what: str,
        why: str,
        at: float | None = None,
        version: int | None = None,
        moves: int = 0,
        predicted: Waste | None = None,
        measured: Waste | None = None,
        lost: int | None = None,
        kind: Kind | None = None,
        moved: Sequence[FlowMove] = (),
    ) -> None:
        at = self._clock() if at is None else at
        number = len(self.audit) + 1
        entry = AuditEntry(
            number, at, who, what, why, version, moves, predicted, measured, lost, kind
        )
        self.audit.append(msgspec.structs.replace(entry, moved=[*moved]))

    def _version_at(self, at: float) -> VersionStatus:
        return next((each for each in reversed(self.versions) if each.at <= at), self.versions[0])

    def _predict(self, at: float) -> Waste:
        if not self.versions:
            return Waste(0.0, 0.0, 0.0)
        return self._version_at(at).predicted or Waste(0.0, 0.0, 0.0)

    def _measure(self, at: float) -> Waste:
        """The prediction with a market's breath, and with a bit of noise."""
        predicted = self._predict(at)
        breath = 1.0 + 0.06 * math.sin(at / 47) + 0.03 * math.sin(at * 1.3)
        worse = 1.0 + 0.05 * math.sin(at / 31 + 1) + 0.04 * math.sin(at * 0.9)
        return Waste(
            predicted.wanted * breath,
            predicted.dropped_first * breath * worse,
            predicted.dropped_second * breath * worse,
        )

    def _scale(self, waste: Waste, number: int) -> Waste:
        share = float(self._shares[number])
        return Waste(*(value * share for value in msgspec.structs.astuple(waste)))

    def _describe(self, number: int, now: float) -> ReceiverStatus:
        gone = number == 4
        return ReceiverStatus(
            name=self.names[number],
            alive=not gone,
            heard_at=now - (97.0 if gone else 0.4),
            where=self._spoil(f"process {3100 + number} on floor-{number % 3 + 1}"),
            wants=int(self._wants[number]),
            unserved=["EQ.99.001"] if number == 7 else [],
            groups=5 + number % 4,
            waste=Waste(0.0, 0.0, 0.0) if gone else self._scale(self._measure(now), number),
            gaps=2 if number == 2 else 0,
            missing=19 if number == 2 else 0,
            repairs=40 + 13 * number,
            cpu_share=0.02 + 0.011 * (number % 9),
        )

    def _list_publishers(self, now: float) -> list[PublisherStatus]:
        if self.empty:
            return []
        version = self.versions[-1].version
        return [
            PublisherStatus(
                name=self._spoil(name),
                alive=not gone,
                heard_at=now - ago,
                where=self._spoil(where),
                flows=flows,
                rate=rate,
                unplanned=3,
                plan_version=version - gone,
                behind=gone,
            )
            for name, gone, ago, where, flows, rate in (
                ("nyse", 0, 0.3, "process 2101 on feed-1", 96, 311.4),
                ("nasdaq", 0, 0.6, "process 2102 on feed-1", 88, 274.0),
                ("cme", 1, 42.0, "process 2103 on feed-2", 30, 0.0),
            )
        ]

    def _describe_stream(self, now: float) -> StreamStatus:
        if self.empty:
            return StreamStatus("starting")
        batch = int((now - self._began) // 5)
        return StreamStatus(
            state="running",
            restarts=1,
            last_error=self._spoil("the stream was killed; started again after 2 s"),
            batch=batch,
            batch_at=self._began + 5 * batch,
            batch_seconds=1.4 + 0.5 * math.sin(batch),
            planning_seconds=0.4 + 0.2 * math.sin(batch),
            behind_rows=310 + 40 * (batch % 5),
            behind_s=3.1,
            rows={"subscriptions": 4_120 + batch, "publications": 1_284_401 + 590 * batch},
            quarantined={self._spoil("flow is empty"): 3, self._spoil("ts is not a time"): 14},
            drift=0.04 + 0.03 * math.sin(batch / 3),
            excess=0.31 + 0.02 * math.cos(batch / 4),
        )

    def _list_alarms(self, now: float) -> list[Alarm]:
        return [
            Alarm(what, self._spoil(who), now - ago, self._spoil(says))
            for what, who, ago, says in (
                (
                    "publisher gone",
                    "cme",
                    42,
                    "publisher 'cme' has not reported for 42 seconds; its 30 flows are silent: "
                    "start it again",
                ),
                (
                    "receiver gone",
                    "options-01",
                    97,
                    "receiver 'options-01' has not reported for 97 seconds; its interest is "
                    "dropped in 23 seconds unless it comes back",
                ),
            )
        ]

    def _spoil(self, text: str) -> str:
        """Another text with the worst characters, if everything is hostile."""
        return HOSTILE_NAMES[len(text) % len(HOSTILE_NAMES)] + text if self.hostile else text

    def _group(self, group: int, random: np.random.Generator) -> GroupView:
        sessions = [self._session(3 * group + i, random) for i in range(int(random.integers(1, 4)))]
        rate = sum(each.rate for each in sessions)
        return GroupView(
            group=group,
            address=f"239.192.77.{group}",
            flows=sum(each.flows for each in sessions),
            rate=rate,
            members=max(each.subscribers for each in sessions),
            most_members=10,
            most_rate=450.0 if group % 5 else None,
            sessions=sessions,
        )

    def _session(self, session: int, random: np.random.Generator) -> SessionView:
        flows, rate = int(random.integers(1, 9)), float(random.gamma(2.0, 40.0))
        names = [self._name_flow(session, each) for each in range(min(flows, 6))]
        return SessionView(session, flows, rate, int(random.integers(1, 10)), names)


class FakeLook:
    """A service beside the control plane that answers with a document, or not."""

    def __init__(self, address: str, document: dict[str, Any] | None) -> None:
        self.address = address
        self.document = document

    async def fetch(self) -> dict[str, Any]:
        if self.document is None:
            raise LiveError(f"{self.address}: no broker answers; start it, or check the address")
        return self.document


def _split(dropped: float) -> Waste:
    return Waste(806.0, dropped * 0.72, dropped * 0.28)
