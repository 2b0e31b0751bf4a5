"""What is lost where brokers overload: queues that are full drop what arrives.

The paper says that an overloaded broker drops messages; the other figures of this package have
queues without limit, where nothing is lost and delays grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from distributary.papers.banavar.brokers import subscription_count, visits
from distributary.papers.banavar.load import FLOODING, LINKS, MUCH, PARAMS, make_setting
from distributary.papers.banavar.overload import COSTS_NOTE, BrokerSetting, busiest
from distributary.papers.drawing import Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, join_words, percent, table
from distributary.planning import Progress, Step, silent
from distributary.workloads import content_world

__all__ = ["count_receivers", "drops", "run_outcome"]

PER_CLIENT, SHARE = 13, 0.01  # as in banavar-queues
EVENTS, QUICK_EVENTS = 400, 60  # per publisher, published cyclically
SECONDS, QUICK_SECONDS = 20.0, 2.0
QUEUES, QUICK_QUEUES = (80, 250, inf), (80, inf)
RATES = (0.9, 1.0, 1.1, 1.25, 1.5, 2.0)  # over that which never rests
QUICK_RATES = (0.8, 1.5)
BELOW, ABOVE = 0.9, 1.25  # rates at which nothing, and something, must be dropped
CHARTED = 250
SOURCE = 'slides, section "Network Loading Results"'
COLOURS = {LINKS: "#2272b5", FLOODING: "#d1361c"}
STYLES = {80: ":", 250: "-", inf: "--"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the deliveries that were wanted, at one rate."""

    rate: float  # events/s of each publisher
    wanted: int
    delivered: int
    delay: float  # of 95 % of those delivered at most, in seconds

    @property
    def lost(self) -> float:
        """The share of what was wanted."""
        return 1 - self.delivered / self.wanted


# policy -> length of queues -> by rate
Outcomes = Mapping[str, Mapping[float, Sequence[Outcome]]]


def drops(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """Lost deliveries and delays against the publish rate, for queues with and without a limit."""
    full, found = _measure(quick, seed, progress)
    seconds = QUICK_SECONDS if quick else SECONDS
    return Figure(
        name="banavar-drops",
        title="What overloaded brokers lose",
        source=f"Banavar et al. (1999), {SOURCE}",
        shown=(
            "On the left the share of wanted deliveries that are lost when a broker whose queue "
            "is full drops what arrives; on the right the delay that 95 % of the deliveries do "
            f"not exceed. {subscription_count(PER_CLIENT):,} subscriptions, of which an event "
            f"matches {100 * SHARE:g} %; {seconds:g} s of events, then none until all queues are "
            "empty."
        ),
        columns=("policy", "queue", "events_per_s", "wanted", "delivered", "delay_95_s"),
        rows=tuple(
            (policy, _length(queue), each.rate, each.wanted, each.delivered, each.delay)
            for policy, by_queue in found.items()
            for queue, outcomes in by_queue.items()
            for each in outcomes
        ),
        chart=_chart(found),
        comparison=_comparison(full, found),
        claims=(_dropped_claim(full, found), _higher_claim(found)),
        notes=(
            COSTS_NOTE,
            "The slides say that an overloaded broker drops messages, and not how many fit into "
            f"its queue. Their chart of queues ends at {CHARTED} messages, so queues hold at least "
            f"that many: {CHARTED} is the length by which the claims are judged. 80, their "
            "estimate of the threshold beyond which a queue does not drain, and queues without "
            "limit, as in the other figures, are shown beside it.",
            "[banavar-load](banavar-load.md) calls a broker overloaded when more than 80 messages "
            "wait. With room for 80 that is the moment of its first drop, so its limits are those "
            "of brokers that drop, too: dropping changes what happens beyond them.",
            "Runs are long because a queue that grows slowly takes a while to fill: in a first "
            "set, of 6 s, a queue of 250 under flooding was not full yet at 1.25 times the rate "
            "at which the broker never rests, and neither claim held.",
            "A message that is dropped is lost for all behind that broker; nothing is sent again. "
            "Rates are multiples of that at which the busiest broker never rests, "
            f"{_full_words(full)} events/s of each publisher.",
            f"*Much higher* is read as at least {MUCH} times.",
        ),
        own=_own_words(),
        quick=quick,
        seed=seed,
    )


def _own_words() -> str:
    return (
        "Our brokers on real connections answer a full queue with back-pressure instead: each "
        "publisher may send only as much as its broker allows, and only a client that stays away "
        "loses events, and is told how many ([content routing](../content-routing.md)). Delays "
        "then grow at the publisher, as with queues without limit here, and there is no loss to "
        "draw."
    )


# --- measuring -----------------------------------------------------------------------------------


def _measure(quick: bool, seed: int, progress: Progress) -> tuple[dict[str, float], Outcomes]:
    """The rates at which the busiest broker never rests, and what becomes of deliveries."""
    world = content_world(PARAMS, np.random.default_rng(seed)).with_matching_share(SHARE)
    events = QUICK_EVENTS if quick else EVENTS
    seconds = QUICK_SECONDS if quick else SECONDS
    queues, ratios = (QUICK_QUEUES, QUICK_RATES) if quick else (QUEUES, RATES)
    full: dict[str, float] = {}
    found: dict[str, dict[float, list[Outcome]]] = {}
    total, done = 2 * len(queues) * len(ratios), 0
    for policy in (LINKS, FLOODING):
        network = make_setting(policy, world, PER_CLIENT, events, seed)
        _, full[policy] = busiest(network.work())
        wanted = count_receivers(network)
        found[policy] = {queue: [] for queue in queues}
        for queue, outcomes in found[policy].items():
            for ratio in ratios:
                progress(Step("runs", done, total))
                done += 1
                rng = np.random.default_rng([seed, 5])
                rate = full[policy] * ratio
                outcomes.append(run_outcome(network, rate, seconds, queue, wanted, rng))
    progress(Step("runs", total, total))
    return full, found


def count_receivers(network: BrokerSetting) -> dict[str, list[int]]:
    """How many clients want each event of the pool, by publisher."""
    return {
        root: [
            sum(len(visit.receivers) for visit in visits(network.brokers, root, keys))
            for keys in events
        ]
        for root, events in network.pool.events.items()
    }


def run_outcome(
    network: BrokerSetting,
    rate: float,
    seconds: float,
    queue: float,
    wanted: Mapping[str, Sequence[int]],
    rng: np.random.Generator,
) -> Outcome:
    """Publish at a rate for some seconds, and wait until all queues are empty."""
    simulation = network.start_simulation(rate, seconds, rng, capacity=queue)
    simulation.run()
    record = simulation.record
    published = {
        root: sum(record.messages["publisher", root, fate] for fate in ("arrived", "dropped"))
        for root in wanted
    }
    return Outcome(
        rate,
        sum(
            each[number % len(each)]
            for root, each in wanted.items()
            for number in range(published[root])
        ),
        len(record.delivered),
        float(np.quantile([delay for _, _, _, delay, _ in record.delivered], 0.95)),
    )


# --- reporting -----------------------------------------------------------------------------------


def _length(queue: float) -> str:
    return "no limit" if queue == inf else f"{queue:g}"


def _full_words(full: Mapping[str, float]) -> str:
    return join_words([f"{rate:.0f} under {policy}" for policy, rate in full.items()])


def _judged(by_queue: Mapping[float, Sequence[Outcome]]) -> Sequence[Outcome]:
    """Those of the longest queues that have a limit."""
    return by_queue[max(queue for queue in by_queue if queue < inf)]


def _comparison(full: Mapping[str, float], found: Outcomes) -> str:
    queues = list(found[LINKS])
    rows = []
    for policy, by_queue in found.items():
        for at, first in enumerate(by_queue[inf]):
            cells = [
                f"{percent(each.lost, 1)}, {each.delay:.2f} s"
                for each in (outcomes[at] for outcomes in by_queue.values())
            ]
            ratio = f"{first.rate / full[policy]:.2f}"
            rows.append((policy, ratio, f"{first.rate:.0f}", *cells, NOTHING, NOTHING))
    heads = [
        f"ours, {'queues of ' * (queue < inf)}{_length(queue)}: lost, delay" for queue in queues
    ]
    return table(("policy", "rate", "events/s", *heads, "paper", "independent"), rows)


def _dropped_claim(full: Mapping[str, float], found: Outcomes) -> Claim:
    words, agrees = [], True
    for policy, by_queue in found.items():
        outcomes = _judged(by_queue)
        below = [each for each in outcomes if each.rate <= BELOW * full[policy] + 1e-9]
        above = [each for each in outcomes if each.rate >= ABOVE * full[policy] - 1e-9]
        words.append(
            f"{policy} loses {percent(max(each.lost for each in below), 1)} at most up to "
            f"{below[-1].rate:.0f} events/s, and {percent(above[0].lost, 1)} at "
            f"{above[0].rate:.0f}"
        )
        agrees &= max(each.lost for each in below) == 0 and min(each.lost for each in above) > 0
    return Claim(
        "a broker whose queue grows faster than it can dequeue drops messages",
        SOURCE,
        "; ".join(words),
        agrees,
    )


def _higher_claim(found: Outcomes) -> Claim:
    first = {
        policy: min((each.rate for each in _judged(by_queue) if each.lost), default=inf)
        for policy, by_queue in found.items()
    }
    flood = _judged(found[FLOODING])
    worst = max(each.lost for each in flood if each.rate < first[LINKS])
    return Claim(
        "link matching handles much higher publish rates than flooding without dropping",
        SOURCE,
        f"the first loss is at {first[LINKS]:.0f} events/s, under flooding at "
        f"{first[FLOODING]:.0f}, which loses up to {percent(worst)} below the other",
        first[LINKS] >= MUCH * first[FLOODING],
    )


def _chart(found: Outcomes) -> str:
    def paint(sheet: Sheet) -> None:
        left, right = sheet.panels
        for policy, by_queue in found.items():
            for queue, outcomes in by_queue.items():
                rates = [each.rate for each in outcomes]
                label = f"{policy}, {'queues of ' * (queue < inf)}{_length(queue)}"
                for axes, y in (
                    (left, [100 * each.lost for each in outcomes]),
                    (right, [each.delay for each in outcomes]),
                ):
                    line, colour = STYLES[queue], COLOURS[policy]
                    axes.plot(rates, y, color=colour, marker="o", linestyle=line, label=label)
        left.set(ylabel="wanted deliveries lost, %")
        right.set(ylabel="delay of 95 % of deliveries, s")
        for axes in sheet.panels:
            axes.set(xlabel="events/s of each publisher", xlim=(0, None), ylim=(0, None))
        draw_legend(sheet, columns=2)

    return draw_chart("banavar-drops", "Lost deliveries", (9, 4.5), paint, shape=(1, 2))
