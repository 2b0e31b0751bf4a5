"""The experiments of Chen et al. in small, and what their figures make of outcomes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from distributary.content import (
    COVERING_POLICIES,
    ContentBroker,
    SubscribeRequest,
    UnsubscribeRequest,
)
from distributary.content.events import ContentEvent
from distributary.content.messages import Name, Packed, SubscribeStatement
from distributary.machines.actions import Work
from distributary.model import Filter
from distributary.papers import Figure
from distributary.papers.chen import fig1, fig7, fig8, fig9, fig10, fig12, network, readings, runs
from distributary.papers.chen.choices import CHOSEN, CLUSTERED
from distributary.papers.chen.mobile import (
    TIERS,
    MobileCase,
    MobileOutcome,
    _schedule_moves,
    run_mobile_case,
)
from distributary.papers.chen.network import (
    CORE,
    CongestionCase,
    CongestionOutcome,
    end_subscriptions,
    publish_until_endings,
    run_congestion_case,
)
from distributary.papers.chen.other_readings import all_cases
from distributary.papers.chen.runs import ACTIVE, COMPARED, OURS, POLICIES, SELECTIVE
from distributary.papers.chen.telling import INNER
from distributary.papers.chen.witness import Witness
from distributary.papers.queue_trace import QueueTrace
from distributary.planning import Step, silent
from distributary.workloads.roaming import RoamingParams, roaming
from distributary.workloads.workflows import WorkflowsParams, range_filter, subscriber_edges

TINY = CongestionCase(
    COVERING_POLICIES["none"],
    WorkflowsParams(subscriptions=220, degree=10, workflows=2),
    unsubscriptions=8,
    publications=470,
    before=60,
    probe_after=0.0,
    scale=0.01,
)
TINY_MOBILE = MobileCase(
    COVERING_POLICIES["active"],
    RoamingParams(subscribers=120, publishers=5, workflows=1, duration=600.0),
    scale=0.03,
)


@cache
def tiny(policy: str) -> CongestionOutcome:
    return run_congestion_case(replace(TINY, policy=POLICIES[policy]))


@cache
def tiny_mobile(policy: str, overlap: bool = False) -> MobileOutcome:
    return run_mobile_case(replace(TINY_MOBILE, policy=POLICIES[policy], overlap=overlap))


# --- the network of workflows --------------------------------------------------------------------


@pytest.mark.slow
def test_probes_reach_as_many_clients_under_each_policy_as_without_any() -> None:
    wanted = len(run_congestion_case(TINY).delays)
    assert wanted > 100
    assert {policy: len(tiny(policy).delays) for policy in POLICIES} == dict.fromkeys(
        POLICIES, wanted
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_counts_fit_one_another(policy: str) -> None:
    found = tiny(policy)
    assert set(found.queues) == set(CORE)
    assert all(queue.waiting.min(initial=0) >= 0 for queue in found.queues.values())
    assert set(found.publications) >= {*CORE, *INNER}
    assert all(found.unneeded.get(each, 0) <= n for each, n in found.publications.items())
    assert 0 <= found.share_of(found.unneeded) < 0.1
    assert found.delays.min() > 0
    assert found.settled > 0
    assert 0 < found.core_table < TINY.workflows.subscriptions
    assert all(found.triggered[each] >= n for each, n in found.triggered_messages.items())
    assert sum(found.triggered_messages[each] for each in "BCD") > 0
    assert bool(found.remembered) == (POLICIES[policy].prunes is not None)


def test_a_pack_is_one_message_with_several_triggered_subscriptions() -> None:
    packing, active = tiny("packing"), tiny(ACTIVE)
    assert active.triggered_messages == active.triggered == packing.triggered
    assert 0 < packing.triggered_messages["E"] <= TINY.unsubscriptions < packing.triggered["E"]


def test_every_dead_end_of_selective_pruning_is_unneeded_and_more_is() -> None:
    """The broker before a dead end cannot tell either."""
    found = tiny(SELECTIVE)
    dead_ends, unneeded = (sum(each.values()) for each in (found.dead_ends, found.unneeded))
    assert 0 < dead_ends < unneeded


def test_what_is_published_long_before_matters_only_to_a_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = replace(TINY, policy=POLICIES[ACTIVE])
    whole = tiny(ACTIVE)
    monkeypatch.setattr(network, "ENOUGH_WITHOUT_HISTORY", 20)
    part = run_congestion_case(case)
    assert part.messages < whole.messages
    assert np.array_equal(part.delays, whole.delays)
    assert (part.tables, part.unneeded) == (whole.tables, whole.unneeded)


def test_similarity_grows_on_every_path_and_a_broker_that_forgets_breaks_that() -> None:
    case = replace(TINY, policy=POLICIES[ACTIVE], similarities=8)
    found = run_congestion_case(case)
    assert len(found.similarity) == 8
    assert all(list(path) == sorted(path) for path in found.similarity)
    assert any(path[0] < path[-1] for path in found.similarity if path)

    run = publish_until_endings(case)
    inner = [broker for name, broker in run.brokers.items() if name in CORE]
    for broker in inner:
        for entry in list(broker.subscriptions):
            if entry.hop not in CORE:
                broker.subscriptions.remove(entry.name)
    broken = end_subscriptions(case, run)
    assert any(list(path) != sorted(path) for path in broken.similarity)


def test_only_pruning_without_sweeping_leaves_remnants() -> None:
    left = {policy: tiny(policy).loose for policy in POLICIES}
    assert left.pop(SELECTIVE) > 0
    assert not any(left.values())


def test_active_covering_says_everything_again_and_ours_a_union() -> None:
    assert tiny(OURS).triggered["E"] <= TINY.unsubscriptions < tiny(ACTIVE).triggered["E"]
    assert tiny(OURS).tables["E"] < tiny(ACTIVE).tables["E"]


def test_the_same_case_has_the_same_outcome() -> None:
    first, second = tiny(OURS), run_congestion_case(replace(TINY, policy=POLICIES[OURS]))
    assert np.array_equal(first.delays, second.delays)
    assert first.tables == second.tables
    assert first.messages == second.messages
    for broker in CORE:
        assert np.array_equal(first.queues[broker].times, second.queues[broker].times)
    other = run_congestion_case(replace(TINY, policy=POLICIES[OURS], seed=1))
    assert not np.array_equal(first.delays, other.delays)


def test_a_queue_tells_how_many_wait_at_a_time() -> None:
    queue = QueueTrace(np.array([1.0, 2.0, 3.0]), np.array([1, 5, 0]))
    assert queue.at(np.array([0.5, 1.0, 2.5, 9.0])).tolist() == [0, 1, 5, 0]
    assert queue.longest == 5


def test_every_box_of_a_statement_is_compared_with_the_table() -> None:
    schema = WorkflowsParams().schema
    single = range_filter(schema, 0, [0.1], [0.2])
    union = Filter.of(
        [
            box
            for at in (1, 2, 3)
            for box in range_filter(schema, at, [0.1 * at], [0.1 * at + 0.1]).boxes
        ],
        schema,
    )

    def work(message: SubscribeStatement | Packed) -> float:
        broker = ContentBroker("B", ["A"], schema, COVERING_POLICIES["active"])
        for number in range(5):
            filter = range_filter(schema, 9, [number / 10], [number / 10 + 0.05])
            broker.on_message("A", SubscribeStatement(Name("A", number), filter), 0.0)
        actions = broker.on_message("A", message, 0.0)
        return sum(
            each.units for each in actions if isinstance(each, Work) and each.kind == "compare"
        )

    assert work(SubscribeStatement(Name("A", 8), single)) == 5
    assert work(SubscribeStatement(Name("A", 8), union)) == 3 * 5
    packed = Packed(
        (SubscribeStatement(Name("A", 8), single), SubscribeStatement(Name("A", 9), single))
    )
    assert work(packed) == 5 + 6


# --- moving subscribers --------------------------------------------------------------------------


@pytest.mark.parametrize("policy", COMPARED)
def test_moves_leave_counts_that_fit_one_another(policy: str) -> None:
    found = tiny_mobile(policy)
    assert len(found.times) == len(found.tables) == 11
    assert len(found.publications) == len(found.unneeded) == TIERS
    assert all(a >= b for a, b in zip(found.publications, found.unneeded, strict=True))
    assert 0 <= found.share_of(found.unneeded) < 0.2
    assert found.transit.min() > 0
    assert (found.transit < found.tables).all()


def test_monitors_that_overlap_trigger_less() -> None:
    assert tiny_mobile(ACTIVE, True).triggered < tiny_mobile(ACTIVE).triggered
    assert tiny_mobile(OURS).triggered < tiny_mobile(ACTIVE).triggered


class Posts:
    """Takes the place of a simulation, and keeps what is posted."""

    def __init__(self) -> None:
        self.posts: list[tuple[float, str, object, str]] = []

    def post(self, time: float, to: str, message: object, *, sender: str) -> None:
        self.posts.append((time, to, message, sender))


def test_who_moves_often_is_at_one_broker_at_most() -> None:
    params = RoamingParams(3, publishers=1, workflows=1, duration=600.0, moves_per_minute=30.0)
    load = roaming(params, np.random.default_rng(0))
    simulation = Posts()
    _schedule_moves(replace(TINY_MOBILE, roaming=params), simulation, load, 0.0)  # type: ignore[arg-type]
    here: dict[str, str | None] = {
        client: broker for client, broker, _ in (*load.monitors, *load.subscriptions)
    }
    for _, broker, message, client in sorted(simulation.posts, key=lambda post: post[0]):
        if isinstance(message, UnsubscribeRequest):
            assert here[client] == broker
            here[client] = None
        else:
            assert here[client] is None
            here[client] = broker
    last = {move.client: move.broker for move in load.moves}
    assert all(here[client] == broker for client, broker in last.items())


def test_the_same_moves_have_the_same_outcome() -> None:
    again = run_mobile_case(replace(TINY_MOBILE, policy=POLICIES[OURS]))
    assert np.array_equal(again.tables, tiny_mobile(OURS).tables)
    assert again.publications == tiny_mobile(OURS).publications


# --- the figures ---------------------------------------------------------------------------------


def test_cases_run_in_other_processes_with_the_same_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "_found", {})
    case = replace(TINY, policy=POLICIES[ACTIVE])
    steps: list[Step] = []
    (found,) = runs.results(steps.append, {"one": (case, case)})
    assert [(step.done, step.total) for step in steps] == [(0, 1), (1, 1)]
    first, second = found["one"].runs
    assert np.array_equal(first.delays, tiny(ACTIVE).delays)
    assert first is second
    (again,) = runs.results(silent, {"again": (case,)})
    assert again["again"].runs == (first,)


def trace(queue: int) -> QueueTrace:
    """A queue that is longest after 4,000 s and empty after two hours."""
    times = [0.0, 4_000.0, 7_300.0, 7_301.0]
    return QueueTrace(np.array(times), np.array([queue - 1, queue, queue, 0]))


def make_outcome(
    delay: float, queue: int, table: int, triggered: list[int], unneeded: int
) -> CongestionOutcome:
    """An outcome in which every core broker has the same queue."""
    counts = {**dict.fromkeys(INNER, 1), **dict(zip(CORE, triggered, strict=True))}
    return CongestionOutcome(
        delays=np.array([delay, delay]),
        settled=delay,
        queues=dict.fromkeys(CORE, trace(queue)),
        before=dict.fromkeys(CORE, table),
        tables=dict.fromkeys(CORE, table),
        triggered=counts,
        triggered_messages=counts,
        publications=dict.fromkeys([*CORE, *INNER], 1_000),
        unneeded=dict.fromkeys(INNER, unneeded),
        dead_ends={},
        remembered=dict.fromkeys(subscriber_edges(), 14_000),
        similarity=((0.5, 0.9, 1.0),),
        loose=0,
        messages=0,
    )


BURST = make_outcome(4_400.0, 2_000, 1_000, [700, 1_000, 2_000, 4_000, 5_900], 0)
CALM = replace(make_outcome(0.4, 10, 180, [200, 150, 100, 50, 0], 4), settled=0.2)


def as_the_paper_has_it(case: CongestionCase) -> CongestionOutcome:
    """Active, lazy and packing burst, the more so the more ends; everything else is calm."""
    degree = case.workflows.degree
    if case.policy.prunes is not None or case.policy.merges:
        return replace(CALM, tables=dict.fromkeys(CORE, round(case.scale * (200 - degree))))
    few = case.unsubscriptions <= round(100 * case.scale)
    lazy = not case.policy.retracts
    slow = 1.0 if degree == 10 else 4_400.0 if degree == 30 else 8_800.0
    slow *= 0.4 if lazy or case.policy.packs else 1.0
    packs = dict.fromkeys([*CORE, *INNER], 10) | dict.fromkeys(INNER, 1)
    clustered = case.workflows.clusters is CLUSTERED.clusters
    return replace(
        BURST,
        delays=BURST.delays / 4_400 * (0.4 if few else slow),
        queues=dict.fromkeys(CORE, trace(10 if degree == 10 else 4_000 if clustered else 2_000)),
        tables=dict.fromkeys(CORE, round(1_000 * case.scale) + degree + lazy),
        triggered_messages=packs if case.policy.packs else BURST.triggered_messages,
    )


class Answers(dict[CongestionCase, CongestionOutcome]):
    """Remembers every case as having come to what the paper says."""

    def __contains__(self, case: object) -> bool:
        return True

    def __missing__(self, case: CongestionCase) -> CongestionOutcome:
        return as_the_paper_has_it(case)


@pytest.mark.parametrize("make", [fig1, fig7, fig8, fig9, fig10, readings])
def test_every_claim_holds_of_what_the_paper_says(
    make: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_found", Answers())
    figure = make(quick=True, seed=0, progress=silent)  # type: ignore[operator]
    failed = [claim.says for claim in figure.claims if not claim.holds]
    # With a burst as calm as the calm no queue is much shorter than another, as in Fig. 10.
    assert failed == (
        ["selective pruning gains from clusters: its queues are shorter than without them"]
        if make is fig10
        else []
    )


def test_no_claim_about_selective_pruning_holds_if_it_is_as_bad_as_active(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Bursts(Answers):
        def __missing__(self, case: CongestionCase) -> CongestionOutcome:
            return BURST

    monkeypatch.setattr(runs, "_found", Bursts())
    figure = fig7(quick=True, seed=0, progress=silent)
    assert isinstance(figure, Figure)
    held = {claim.says.split(",")[0] for claim in figure.claims if claim.holds}
    assert not any("selective pruning" in says for says in held)
    held = {claim.says for claim in fig10(quick=True, seed=0).claims if claim.holds}
    assert held == {"under active covering bursts begin to drop only after 4,000 s"}


def test_pages_name_every_policy_and_all_three_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_found", Answers())
    figure = fig7(quick=True, seed=0, progress=silent)
    assert {row[1] for row in figure.rows if row[0] == 1} == set(POLICIES)
    assert {row[1] for row in figure.rows if row[0] == 2} == set(COMPARED)
    assert all(len(row) == len(figure.columns) for row in figure.rows)
    for words in ("ours", "paper", "independent", "section"):
        assert words in figure.text


@pytest.mark.parametrize(
    ("make", "reading"),
    [
        (fig1, "*several hours*: at least 2"),
        (fig7, "*about 50 %*: at least 45 %, on the average of the core brokers"),
        (fig8, "*both deliver fast*: active covering takes at most 2 times as long"),
        (fig9, "*stay the same*: the longest are at most 1.5 times the shortest"),
        (fig10, "*substantially smaller*: by at least 33 %"),
        (readings, "*eliminated*: a queue of at most 10 % of active covering's"),
    ],
)
def test_pages_say_how_the_words_of_their_claims_were_read(
    make: object, reading: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_found", Answers())
    figure = make(quick=True, seed=0, progress=silent)  # type: ignore[operator]
    (note,) = [note for note in figure.notes if note.startswith("The claims' words were read so:")]
    assert reading in note


def test_pages_say_that_the_price_of_a_box_was_set_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_found", Answers())
    first = "16.3 µs"
    assert first in fig7(quick=True, seed=0, progress=silent).text
    assert any(first in choice.because for choice in CHOSEN)
    assert 1.63e-5 in {case.per_box for case in all_cases(quick=False, seed=0)}


def test_half_of_the_tables_may_be_missed_by_as_much_as_the_82_percent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Tables(Answers):
        def __init__(self, saved: float) -> None:
            self.kept = round(1_000 * (1 - saved))

        def __missing__(self, case: CongestionCase) -> CongestionOutcome:
            found = as_the_paper_has_it(case)
            kept = 1_000 if case.policy.prunes is None else self.kept
            return replace(found, tables=dict.fromkeys(CORE, kept))

    for saved, holds in ((0.46, True), (0.44, False)):
        monkeypatch.setattr(runs, "_found", Tables(saved))
        claims = fig7(quick=True, seed=0, progress=silent).claims
        assert [claim.holds for claim in claims if "about 50 %" in claim.says] == [holds]


def test_moving_subscribers_make_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Moves(dict[MobileCase, MobileOutcome]):
        def __contains__(self, case: object) -> bool:
            return True

        def __missing__(self, case: MobileCase) -> MobileOutcome:
            policy = next(name for name, each in POLICIES.items() if each == case.policy)
            return tiny_mobile(policy, case.overlap)

    monkeypatch.setattr(runs, "_found_mobile", Moves())
    figure = fig12(quick=True, seed=0, progress=silent)
    assert all(len(row) == len(figure.columns) for row in figure.rows)
    assert {row[0] for row in figure.rows} == {
        "monitors move",
        "all move",
        "monitors overlap",
        "sparse events",
    }
    assert len(figure.claims) == 7
    assert "*much smaller*: at most 50 % of the boxes" in figure.text


def test_the_page_of_readings_lists_every_choice_with_its_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "_found", Answers())
    figure = readings(quick=True, seed=0, progress=silent)
    assert all(each.because in figure.text and "section" in each.because for each in CHOSEN)
    shown = {(row[0], row[1]) for row in figure.rows}
    assert len(shown) == 6
    assert all((setting, "as chosen") in shown for setting, _ in shown)


def test_other_readings_differ_from_the_chosen_one() -> None:
    """A change that changes nothing would compare a case with itself."""
    made = list(all_cases(quick=False, seed=0))
    others = [case for case in made if case.policy.prunes is None]
    pruned = [case for case in made if case.policy.prunes is not None]
    assert len(made) == 3 * 29
    assert len(set(pruned)) == len(pruned) == 29
    assert len(set(others)) == 2 * (29 - 8)  # a history matters to pruning only


# --- the witness ---------------------------------------------------------------------------------


def test_the_witness_knows_who_wants_what_where() -> None:
    load = roaming(RoamingParams(40, publishers=1, workflows=2), np.random.default_rng(1))
    clients = (*load.monitors[:1], *load.subscriptions)
    witness = Witness(load.topology, clients)
    where: dict[str, str] = {}
    rng = np.random.default_rng(2)
    for number, keys in enumerate(load.events(60, rng)):
        client, broker, filter = clients[rng.integers(len(clients))]
        if client in where:
            witness.note(where.pop(client), UnsubscribeRequest(client, 0))
        else:
            where[client] = broker
            witness.note(broker, SubscribeRequest(client, 0, filter))
        wanting = {where[c] for c, _, each in clients if c in where and each.matches(keys)}
        event = ContentEvent(number, keys, 0.0)
        for at in ("region-1", "region-2.1", "region-3.2.1"):
            parent = at.rpartition(".")[0] or "core"
            behind = {each for each in load.topology.brokers if f"{each}.".startswith(f"{at}.")}
            assert witness.is_wanted(event, at, parent) == bool(wanting & behind)
            assert witness.is_wanted(event, parent, at) == bool(wanting - behind)
