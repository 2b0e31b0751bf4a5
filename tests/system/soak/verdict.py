"""Whether every receiver of a soak got what its application asked for, by the diaries alone.

A message is named by its flow (which one publisher has), the run of that publisher, and its number
in that run. For each run of a receiver, and each time that its application wanted a flow:

- *Due* is each message that was published after the receiver was told that it is subscribed
  (`Subscribed`), and before the application left the flow or the run was over. That includes all
  later runs of the publisher, from their first message on.
- *Published* is what the publisher wrote down before it handed the message over; whether it was
  then dropped, since no plan carried the flow, it wrote down too. The last line of a killed run may
  be of a message that was never handed over: nobody has to get that one.
- *Doubled* is a message that comes twice to a run of a receiver. *Disordered* is one that comes
  after a later one of its flow: of a later run, or of a higher number in the same run. *Strange* is
  one that was never published, that has another sequence number than the count of messages that
  were taken of the flow, or that comes after the application left the flow.
- *Lost silently* is a message that was due, did not come, and is in none of these:

  - *missing*: a report names exactly this message, by the flow's sequence numbers;
  - *unserved*: its publisher dropped it, and the receiver reported that nobody carries the flow,
    for a time that began before the flow's next message came and ended after it was published;
  - *over*: it is behind the last message of a killed run that came, and the receiver reported that
    this run is over (`Restarted`, `Gone`);
  - *gap*: the receiver reported a gap of packets in which the flow may have been, and no message of
    that run came before this one (so that numbers were not known yet), or none came after it;
  - *ending*: it is behind the last one that came, and the application left the flow, or the
    receiver was killed, before it could come. A killed receiver starts anew.

  "Over" and "ending" excuse nothing that is older than `PATIENCE` then: nobody may be cut off for
  long without knowing.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.system.soak.runs import PublisherRun, ReceiverRun, Sent, Wish

__all__ = ["PATIENCE", "Verdict", "judge"]

PATIENCE: Final = 30.0  # seconds

Runs = dict[str, list[PublisherRun]]  # of the publisher of a flow, in order


@dataclass(slots=True)
class Verdict:
    """What went wrong, in words, and how much was looked at."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    published: int = 0
    delivered: int = 0
    due: int = 0
    excused: Counter[str] = field(default_factory=Counter)  # by the reason

    @property
    def is_clean(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.lost or self.doubled or self.disordered or self.strange)


def judge(publishers: Iterable[PublisherRun], receivers: Iterable[ReceiverRun]) -> Verdict:
    """Judge what receivers got by what publishers sent."""
    verdict, runs = Verdict(), _list_runs(publishers)
    verdict.published = sum(len(run.sent[flow]) for flow in runs for run in runs[flow])
    for receiver in receivers:
        verdict.strange += receiver.uninvited
        for flow in receiver.got:
            _judge_order(receiver, flow, runs.get(flow, []), verdict)
        for flow, wishes in receiver.wishes.items():
            for wish in wishes:
                _judge_wish(receiver, wish, runs.get(flow, []), verdict)
    return verdict


def _list_runs(publishers: Iterable[PublisherRun]) -> Runs:
    runs: Runs = defaultdict(list)
    for publisher in sorted(publishers, key=lambda run: run.run):
        for flow in publisher.sent:
            runs[flow].append(publisher)
    return runs


def _judge_order(
    receiver: ReceiverRun, flow: str, runs: list[PublisherRun], verdict: Verdict
) -> None:
    seen: set[tuple[int, int]] = set()
    by_run = {run.run: run for run in runs}
    latest = (-1, -1)
    for got in receiver.got[flow]:
        verdict.delivered += 1
        place = got.run, got.number
        says = f"{receiver.name}.{receiver.run}: {flow} {place}"
        sent = by_run[got.run].find(flow, got.number) if got.run in by_run else None
        if sent is None:
            verdict.strange.append(f"{says} was never published")
        elif sent.sequence != got.sequence:
            verdict.strange.append(f"{says} came as {got.sequence}, not {sent.sequence}")
        if place in seen:
            verdict.doubled.append(says)
        elif place < latest:
            verdict.disordered.append(f"{says} came after {latest}")
        seen.add(place)
        latest = max(latest, place)


def _judge_wish(
    receiver: ReceiverRun, wish: Wish, runs: list[PublisherRun], verdict: Verdict
) -> None:
    got = {(each.run, each.number) for each in wish.got}
    for run in runs:
        for sent in _list_due(wish, run):
            verdict.due += 1
            if (run.run, sent.number) in got:
                continue
            reason = _find_excuse(receiver, wish, run, sent)
            if reason:
                verdict.excused[reason] += 1
            else:
                verdict.lost.append(_describe(receiver, wish, run, sent))


def _list_due(wish: Wish, run: PublisherRun) -> Iterator[Sent]:
    for sent in run.sent[wish.flow]:
        is_certain = (wish.flow, sent.number) != run.uncertain
        if wish.subscribed < sent.at <= wish.until and is_certain:
            yield sent


def _find_excuse(receiver: ReceiverRun, wish: Wish, run: PublisherRun, sent: Sent) -> str:
    """Why a message that was due may not have come; empty if nothing says so."""
    place, flow = (run.run, sent.number), wish.flow
    numbers = [each.number for each in wish.got if each.run == run.run]
    is_first = not numbers or sent.number < min(numbers)
    is_last = not numbers or sent.number > max(numbers)
    came_next = min((each.at for each in wish.got if (each.run, each.number) > place), default=None)
    if sent.sequence is None:
        if _was_unserved(receiver, flow, sent, math.inf if came_next is None else came_next):
            return "unserved"
    else:
        if receiver.is_reported_missing(run.incarnation, flow, sent.sequence):
            return "missing"
        if (is_first or is_last) and receiver.has_gap(run.incarnation, flow):
            return "gap"
    is_over = not run.ended_well and run.incarnation in receiver.over
    if is_last and is_over and sent.at > run.until - PATIENCE:
        return "over"
    if came_next is None and wish.is_cut and sent.at > wish.until - PATIENCE:
        return "ending"
    return ""


def _was_unserved(receiver: ReceiverRun, flow: str, sent: Sent, came_next: float) -> bool:
    times = receiver.unserved.get(flow, [])
    return any(begin <= came_next and end >= sent.at for begin, end in times)


def _describe(receiver: ReceiverRun, wish: Wish, run: PublisherRun, sent: Sent) -> str:
    dropped = ", dropped" if sent.sequence is None else f", sequence {sent.sequence}"
    return (
        f"{receiver.name}.{receiver.run} lacks {wish.flow} ({run.run}, {sent.number}) published at "
        f"{sent.at:.3f}{dropped}; subscribed {wish.subscribed:.3f} until {wish.until:.3f}"
    )
