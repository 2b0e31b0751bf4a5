"""Keep-alives, dead peers and pauses, in a time that is an argument."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.machines.real.liveness import BackOff, Liveness, Verdict


def watch(heard: list[float], sent: list[float], until: float) -> list[tuple[float, Verdict]]:
    """Check a connection (2 s, 10 s) whenever it asks for it, and return what it did."""
    liveness = Liveness(0.0, keep_alive=2.0, dead_after=10.0)
    events = sorted([(at, 0) for at in heard] + [(at, 1) for at in sent])
    done = []
    while liveness.next_check <= until:
        now = liveness.next_check
        while events and events[0][0] <= now:
            at, kind = events.pop(0)
            (liveness.send if kind else liveness.hear)(at)
        verdict = liveness.check(now)
        if verdict is not Verdict.WAIT:
            done.append((now, verdict))
        if verdict is Verdict.DEAD:
            break
    return done


def test_an_idle_connection_sends_keep_alives_until_its_peer_is_dead() -> None:
    alive = [(at, Verdict.SEND) for at in (2.0, 4.0, 6.0, 8.0)]
    assert watch([], [], 20.0) == [*alive, (10.0, Verdict.DEAD)]


def test_who_sends_anyway_sends_no_keep_alives() -> None:
    often = [0.5 * n for n in range(60)]
    assert watch(often, often, 25.0) == []


@given(st.lists(st.floats(0.0, 9.0), min_size=1, max_size=30))
def test_a_peer_is_dead_exactly_after_the_first_silence_that_is_long_enough(
    gaps: list[float],
) -> None:
    heard, at = [], 0.0
    for gap in gaps:
        at += gap
        heard.append(at)
    done = watch(heard, [], 1_000.0)
    assert done[-1] == (at + 10.0, Verdict.DEAD)
    assert all(verdict is Verdict.SEND for _, verdict in done[:-1])


def test_a_process_that_was_stopped_does_not_take_its_peers_for_dead() -> None:
    liveness = Liveness(0.0, keep_alive=2.0, dead_after=10.0)
    assert liveness.check(500.0) is Verdict.SEND
    for now in (502.0, 504.0, 506.0, 508.0):
        assert liveness.check(now) is Verdict.SEND
    assert liveness.check(510.0) is Verdict.DEAD


@pytest.mark.parametrize(("keep_alive", "dead_after"), [(0.0, 1.0), (2.0, 2.0), (3.0, 2.0)])
def test_times_that_make_no_sense_are_refused(keep_alive: float, dead_after: float) -> None:
    with pytest.raises(ValueError, match="less than dead_after"):
        Liveness(0.0, keep_alive=keep_alive, dead_after=dead_after)


def test_pauses_double_with_jitter_up_to_the_longest() -> None:
    back_off = BackOff(Random(1), first=0.05, longest=5.0)
    for attempt in range(100):
        whole = min(5.0, 0.05 * 2.0**attempt)
        assert whole / 2 <= back_off.pause() <= whole


def test_pauses_begin_again_only_after_a_connection_that_lasted() -> None:
    back_off = BackOff(Random(1), first=0.05, longest=5.0)
    for _ in range(20):
        back_off.pause(lived=4.9)
    assert back_off.pause(lived=4.9) >= 2.5
    assert back_off.pause(lived=5.1) <= 0.05


def test_the_same_seed_gives_the_same_pauses() -> None:
    one, two = BackOff(Random(7)), BackOff(Random(7))
    assert [one.pause() for _ in range(9)] == [two.pause() for _ in range(9)]
