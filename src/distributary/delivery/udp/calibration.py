"""Measures what the two filters of a receiver cost on this machine: alpha(h) and beta(h).

As in Tock et al., two sessions share one group and the receiver wants one of them. With message
rates t1 (wanted) and t2 its CPU use is (t1 + t2) alpha(h) + t1 beta(h) (eq. 9 of the paper). The
rates are varied, and alpha and beta fitted by least squares for each h, then alpha0 + alpha1/h and
beta0 + beta1/h.

We deviate from the paper twice. The fit has a constant too, since waking up has a cost that does
not depend on messages. And only one in `FLOWS` flows of the wanted session is wanted unless
`wanted_flows` says otherwise, so that beta is the price of the filter and not of using messages,
which no plan can save. The paper's receiver accepts the whole session.

Reference: Y. Tock, N. Naaman, A. Harpaz, G. Gershinsky, "Hierarchical Clustering of Message Flows
in a Multicast Data Dissemination System" (2005), section 5.2 and Fig. 5.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np

from distributary.cost import FilteringPrices
from distributary.delivery import CONTROL_GROUP, group_name
from distributary.delivery.errors import NetworkError
from distributary.delivery.udp.datagrams import Address
from distributary.delivery.udp.endpoints import format_address, parse_address
from distributary.delivery.udp.measured import (
    MeasuredReceiver,
    MeasuredReceiverSettings,
    run_measured_receiver,
)
from distributary.delivery.udp.network import NetworkOptions
from distributary.delivery.udp.sockets import find_interface, open_own_socket
from distributary.delivery.udp.trains import Train, TrainSender, build_directory
from distributary.files import write_plan
from distributary.model import FloatArray, Plan

__all__ = [
    "FACTORS",
    "READ_INTERVAL",
    "Calibration",
    "CalibrationParams",
    "FittedLine",
    "FittedPrice",
    "Measurement",
    "announce_until_followed",
    "calibrate",
    "fit_line",
    "fit_price",
    "make_two_session_plan",
    "pick_medians",
]

FACTORS = (1, 2, 4, 8, 16, 40)
FLOWS = 16  # of each session
TICK = 0.002  # seconds from one burst to the next
READ_INTERVAL = 0.005  # seconds from one read of the receiver to the next
# Shares of the full rate that the wanted and the unwanted session have.
_MIXES = ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (0.5, 0.0), (0.0, 0.5), (0.25, 0.25))
_GOOD_FIT = 0.8  # R2
_TRIES = 4  # each at half the rate of the one before


@dataclass(frozen=True, slots=True)
class CalibrationParams:
    """The settings of a calibration."""

    factors: tuple[int, ...] = FACTORS  # h
    message_bytes: int = 200
    seconds: float = 0.5  # for each mix of rates
    packets: float = 120e3  # a second, at most
    bytes: float = 400e6  # a second, at most
    unicast: bool = False  # to the receiver's own address, where there is no multicast
    rounds: int = 1
    gather: float = READ_INTERVAL  # seconds from one read of the receiver to the next
    joined: bool = False  # send packets of one size together, as `Publisher` does in bursts
    wanted_flows: int = 1  # of the `FLOWS` in the session that the receiver subscribes to

    def __post_init__(self) -> None:
        if not self.factors or min(self.factors) < 1 or len(set(self.factors)) < 2:
            raise ValueError(
                "calibration needs two different numbers of messages per packet, from 1 on"
            )
        if max(self.factors) * (16 + self.message_bytes) + 40 > 65_507:
            raise ValueError(
                "the largest packet would be longer than 65,507 bytes; use fewer messages"
            )
        if not 1 <= self.wanted_flows <= FLOWS:
            raise ValueError(f"wanted_flows must be from 1 to {FLOWS}, not {self.wanted_flows}")
        positive = (
            self.seconds,
            self.packets,
            self.bytes,
            self.message_bytes,
            self.rounds,
            self.gather,
        )
        if not min(positive) > 0:
            raise ValueError(
                "seconds, packets, bytes, message_bytes, rounds and gather are above 0"
            )

    def rate(self, h: int) -> float:
        """The full rate in messages a second at h messages per packet."""
        return min(self.packets * h, self.bytes / (self.message_bytes + 16 + 40 / h))


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement: message rates of the wanted and the other session, and CPU use."""

    h: int
    wanted_rate: float
    other_rate: float
    cpu: float


@dataclass(frozen=True, slots=True)
class FittedPrice:
    """The prices at h messages per packet, in CPU seconds a message; `r2` of their fit."""

    h: int
    alpha: float
    beta: float
    idle: float  # CPU seconds a second, without any message
    r2: float


@dataclass(frozen=True, slots=True)
class FittedLine:
    """constant + per_packet/h."""

    constant: float
    per_packet: float
    r2: float

    def at(self, h: float) -> float:
        """The price at h messages per packet."""
        return self.constant + self.per_packet / h


@dataclass(frozen=True, slots=True)
class Calibration:
    """The prices of this machine, in CPU seconds a message."""

    params: CalibrationParams
    points: tuple[Measurement, ...]
    prices: tuple[FittedPrice, ...]
    alpha: FittedLine
    beta: FittedLine

    @property
    def doubtful(self) -> bool:
        """Whether the fit is poor, which happens when the machine is busy with other work.

        The fit of beta's line does not count, since beta hardly depends on h.
        """
        return min(self.alpha.r2, *(price.r2 for price in self.prices)) < _GOOD_FIT

    def at(self, messages_per_packet: float) -> FilteringPrices:
        """The prices for planning at h messages per packet."""
        return FilteringPrices.for_packets(
            messages_per_packet,
            alpha0=self.alpha.constant,
            alpha1=self.alpha.per_packet,
            beta0=self.beta.constant,
            beta1=self.beta.per_packet,
        )


def calibrate(
    network: NetworkOptions,
    params: CalibrationParams | None = None,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Calibration:
    """Measure alpha(h) and beta(h) of a receiver on this machine; takes some seconds for each h."""
    params = CalibrationParams() if params is None else params
    points = _measure_all(network, params, progress)
    prices = tuple(
        fit_price(pick_medians([p for p in points if p.h == h], len(_MIXES)), h)
        for h in params.factors
    )
    factors = [price.h for price in prices]
    return Calibration(
        params,
        tuple(points),
        prices,
        fit_line(factors, [price.alpha for price in prices]),
        fit_line(factors, [price.beta for price in prices]),
    )


# --- fitting -------------------------------------------------------------------------------------


def pick_medians(points: Sequence[Measurement], mixes: int) -> list[Measurement]:
    """The point with the median CPU of each mix; `points` has several rounds of `mixes` points.

    Other work of the machine makes single measurements far too high, so a mean would not do.
    """
    found = []
    for mix in range(mixes):
        same = sorted(points[mix::mixes], key=lambda point: point.cpu)
        found.append(same[(len(same) - 1) // 2])
    return found


def fit_price(points: Sequence[Measurement], h: int) -> FittedPrice:
    """Fit alpha, beta and the constant by least squares, none of them below 0."""
    wanted = np.array([point.wanted_rate for point in points])
    other = np.array([point.other_rate for point in points])
    cpu = np.array([point.cpu for point in points])
    # In units of the largest rate: else the constant's column is lost beside the others.
    scale = float(max(wanted.max(), other.max()))
    columns = np.column_stack(((wanted + other) / scale, wanted / scale, np.ones(len(cpu))))
    found = _fit_not_negative(columns, cpu)
    alpha, beta, idle = found.tolist()
    return FittedPrice(h, alpha / scale, beta / scale, idle, _r2(columns @ found, cpu))


def fit_line(factors: Sequence[int], prices: Sequence[float]) -> FittedLine:
    """Fit constant + per_packet/h by least squares, neither below 0."""
    columns = np.column_stack((np.ones(len(factors)), 1 / np.array(factors, np.float64)))
    known = np.array(prices, np.float64)
    found = _fit_not_negative(columns, known)
    return FittedLine(float(found[0]), float(found[1]), _r2(columns @ found, known))


def _fit_not_negative(columns: FloatArray, known: FloatArray) -> FloatArray:
    """Least squares with no coefficient below 0.

    In the best fit some columns have coefficient 0, and the others are fitted as if those were not
    there. There are at most three columns, so every choice of them is tried.
    """
    best, least = np.zeros(columns.shape[1]), float((known**2).sum())
    places = range(columns.shape[1])
    for used in chain.from_iterable(combinations(places, n + 1) for n in places):
        found = np.zeros(columns.shape[1])
        found[list(used)] = np.linalg.lstsq(columns[:, used], known, rcond=None)[0]
        error = float(((columns @ found - known) ** 2).sum())
        if found.min() >= 0 and error < least:
            best, least = found, error
    return best


def _r2(fitted: FloatArray, known: FloatArray) -> float:
    spread = float(((known - known.mean()) ** 2).sum())
    return 1 - float(((known - fitted) ** 2).sum()) / spread if spread else 1.0


# --- measuring -----------------------------------------------------------------------------------


def _measure_all(
    network: NetworkOptions, params: CalibrationParams, progress: Callable[[int, int], None]
) -> list[Measurement]:
    """Measure all mixes at each h; halve the rate where the receiver loses packets."""
    tasks = [(h, params.rate(h)) for h in params.factors * params.rounds]
    points: list[Measurement] = []
    done = tries = 0
    while done < len(tasks):
        progress(done, len(tasks))
        for found in _measure_some(network, params, tasks[done:]):
            points += found
            done += 1
            tries = 0
            progress(done, len(tasks))
        if done < len(tasks):  # that one lost packets
            h, rate = tasks[done]
            tries += 1
            if tries == _TRIES:
                raise NetworkError(
                    network.groups.base,
                    f"packets are lost even at {rate:,.0f} messages a second",
                    "calibrate while the machine has less to do, or raise net.core.rmem_max",
                )
            tasks[done] = h, rate / 2
    return points


def make_two_session_plan(flows: int = FLOWS) -> Plan:
    """Two sessions of so many flows in one group; receiver `r` subscribes to the first."""
    return Plan(
        ("r",),
        tuple(f"{session}-{flow:04}" for session in "ab" for flow in range(flows)),
        np.arange(2 * flows, dtype=np.int32),
        np.repeat(np.array([0, 1], np.int32), flows),
        np.zeros(2, np.int32),
        np.zeros(1, np.int32),
        np.zeros(1, np.int32),
    )


def _measure_some(
    network: NetworkOptions, params: CalibrationParams, tasks: Sequence[tuple[int, float]]
) -> Iterator[list[Measurement]]:
    """Measure each h and rate with one receiver, until it loses packets."""
    plan, incarnation = make_two_session_plan(), time.time_ns()
    with tempfile.TemporaryDirectory(prefix="distributary-calibrate-") as folder:
        write_plan(plan, {}, f"{folder}/plan")
        with open_own_socket(network, find_interface(network)) as own, ExitStack() as stack:
            settings = MeasuredReceiverSettings(
                f"{folder}/plan",
                "r",
                plan.flows[: params.wanted_flows],
                base=network.groups.base,
                port=network.groups.port,
                interface=network.interface,
                gather=params.gather,
                largest_packet=max(9_216, 40 + max(params.factors) * (16 + params.message_bytes)),
                sender=_address_here(own) if params.unicast else "",
            )
            receiver = stack.enter_context(run_measured_receiver(settings))
            to = announce_until_followed(
                plan, incarnation, receiver, network, own, unicast=params.unicast
            )
            engine = TrainSender(own, joined=params.joined)
            trains: list[Train] = []
            for h, rate in tasks:
                trains = _make_trains(h, params.message_bytes, incarnation, trains)
                points = _measure(engine, trains, rate, params.seconds, receiver, to)
                if points is None:
                    return
                yield points


def _address_here(own: socket.socket) -> str:
    """The address of a socket as receivers on this machine see it."""
    host, *rest = own.getsockname()
    anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    return format_address((anywhere.get(host, host), *rest))


def _make_trains(h: int, message_bytes: int, incarnation: int, before: list[Train]) -> list[Train]:
    """Make a train for each session, which continues the numbers of the train before."""
    return [
        Train(
            session,
            range(session * FLOWS, (session + 1) * FLOWS),
            incarnation,
            messages_per_packet=h,
            message_bytes=message_bytes,
            after=before[session] if before else None,
        )
        for session in (0, 1)
    ]


def _measure(
    engine: TrainSender,
    trains: Sequence[Train],
    rate: float,
    seconds: float,
    receiver: MeasuredReceiver,
    to: Address,
) -> list[Measurement] | None:
    """Measure each mix; returns None if packets were lost."""
    points = []
    for mix in ((0.1, 0.1), *_MIXES):  # the first one warms up
        rates = [share * rate for share in mix]
        point = _run_mix(engine, trains, rates, seconds, receiver, to)
        if point is None:
            return None
        points.append(point)
    return points[1:]


def announce_until_followed(
    plan: Plan,
    incarnation: int,
    receiver: MeasuredReceiver,
    network: NetworkOptions,
    own: socket.socket,
    *,
    unicast: bool = False,
) -> Address:
    """Announce a publisher until a measured receiver follows it; returns its first group."""
    alone = parse_address(receiver.address)
    assert alone is not None
    control = alone if unicast else (network.groups.of(CONTROL_GROUP), network.groups.port)
    for sequence in range(1, 500):
        for packet in build_directory(plan, incarnation, sequence):
            own.sendto(packet, control)
        if receiver.report()["followed_flows"]:
            return alone if unicast else (network.groups.of(group_name(0)), network.groups.port)
        time.sleep(0.01)
    raise NetworkError(
        network.groups.base,
        "the receiver does not hear what is sent there",
        "name another interface",
    )


def _run_mix(
    engine: TrainSender,
    trains: Sequence[Train],
    rates: Sequence[float],
    seconds: float,
    receiver: MeasuredReceiver,
    to: Address,
) -> Measurement | None:
    h = trains[0].messages_per_packet
    before, sent = receiver.report(), [train.packets for train in trains]
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        for train, rate, base in zip(trains, rates, sent, strict=True):
            engine.send(train, int(passed * rate / h) - (train.packets - base), to)
        time.sleep(TICK)
    took = time.monotonic() - began
    packets = sum(train.packets - base for train, base in zip(trains, sent, strict=True))
    after = receiver.await_count("packets", before["packets"] + packets, 1.0)
    if after["packets"] < before["packets"] + packets or after["overrun"]:
        return None
    wanted, other = (
        (train.packets - base) * h / took for train, base in zip(trains, sent, strict=True)
    )
    return Measurement(h, wanted, other, (after["cpu_seconds"] - before["cpu_seconds"]) / took)
