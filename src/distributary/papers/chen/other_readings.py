"""The readings that were chosen, and what the other ones give that the text allows.

Each of them changes one thing. They are run at a fifth of the paper's size, active covering beside
selective pruning and our merging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from distributary.content import Pruning
from distributary.papers.chen.choices import CHOSEN, CLUSTERED, HISTORY
from distributary.papers.chen.network import CORE, CongestionCase
from distributary.papers.chen.pricing import FIRST_SECONDS_PER_BOX
from distributary.papers.chen.repeats import Repeated
from distributary.papers.chen.runs import (
    ACTIVE,
    COMPARED,
    OURS,
    QUICK,
    SELECTIVE,
    case,
    results,
)
from distributary.papers.chen.telling import (
    COLOURS,
    INNER,
    LABELS,
    PRICED,
    explain_words,
    seconds,
    share,
    times_as,
    way,
)
from distributary.papers.drawing import INK, Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, join_words, table
from distributary.planning import Progress, silent
from distributary.workloads.workflows import Clusters, WorkflowsParams

__all__ = ["all_cases", "readings"]

SCALE, QUICK_READINGS = 0.2, 3
SLIGHT = 0.1  # of active covering's queue
CHEAPER_BOX = 1.2e-5
LAST_64 = Pruning(window=64, expires=inf)

# The false positives of selective pruning in the core that an independent implementation found.
INDEPENDENT_CORE = "1.16 %"

Change = Callable[[CongestionCase], CongestionCase]
Key = tuple[str, str, str]  # setting, reading, policy
Runs = Mapping[Key, Repeated]


@dataclass(frozen=True, slots=True)
class Setting:
    """An experiment of the paper, and the readings that it is run with."""

    name: str
    full: WorkflowsParams
    readings: tuple[str, ...]


def _draw(**change: object) -> Change:
    def apply(made: CongestionCase) -> CongestionCase:
        return replace(made, workflows=replace(made.workflows, **change))  # type: ignore[arg-type]

    return apply


def _prune(pruning: Pruning) -> Change:
    def apply(made: CongestionCase) -> CongestionCase:
        if made.policy.prunes is None:
            return made
        return replace(made, policy=replace(made.policy, prunes=pruning))

    return apply


def _price(per_box: float) -> Change:
    return lambda made: replace(made, per_box=per_box)


AS_CHOSEN = "as chosen"
REMEMBERS_FEW = "the last 64 publications are remembered"
NEVER_ALL_THE_WAY = "an unsubscription is never sent all the way"
CHANGES: Mapping[str, Change] = {
    AS_CHOSEN: lambda made: made,
    "children cover at most 80 % of a root": _draw(held=0.8),
    "an event is wanted by one root, not two": _draw(overlap=1.0),
    "12 µs a box: 4 to 5 messages a second": _price(CHEAPER_BOX),
    f"{1e6 * FIRST_SECONDS_PER_BOX:g} µs a box, the first price": _price(FIRST_SECONDS_PER_BOX),
    REMEMBERS_FEW: _prune(LAST_64),
    NEVER_ALL_THE_WAY: _prune(replace(HISTORY, few=0)),
    "clusters of edge brokers in a row": _draw(clusters=Clusters.ROW),
}
_EVERYWHERE = tuple(CHANGES)[:-1]
SETTINGS = (
    Setting("Fig. 7", WorkflowsParams(), _EVERYWHERE),
    Setting("Fig. 9, degree 10", WorkflowsParams(degree=10), _EVERYWHERE),
    Setting("Fig. 9, degree 50", WorkflowsParams(degree=50), _EVERYWHERE),
    Setting("Fig. 10", CLUSTERED, tuple(CHANGES)),
)


def readings(
    *, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent
) -> Figure:
    """What each reading gives in Figs. 7, 9 and 10."""
    (found,) = results(progress, _make_cases(quick, seed))
    return Figure(
        name="chen-readings",
        title="How the paper was read, and how else it may be read",
        source="Chen et al. (2011), sections I, IV and V",
        shown=(
            "What the paper's text leaves open was decided by what it says, and every figure was "
            "run with the same decisions:\n\n"
            f"{_list_chosen()}\n\n"
            f"Below are other readings, each a change of one decision, at {_name_scale(quick)} of "
            "the paper's size and with one seed. Each box costs in proportion more, so that "
            "brokers are as busy."
        ),
        columns=("setting", "reading", "policy", "quantity", "at", "value"),
        rows=tuple(row for key, each in found.items() for row in _rows(key, each)),
        chart=_chart(found),
        comparison=f"{_comparison(found)}\n\n{_out_of_reach(found)}",
        claims=(_congestion_claim(found),),
        own=_tell_ours(found),
        notes=(
            PRICED,
            "The paper's conclusion speaks of its experiments. Here it is judged under every "
            "reading of the table at once.",
            explain_words(
                {"eliminated": f"a queue of at most {share(SLIGHT)} of active covering's"}
            ),
            *_tell_unchanged(found),
            "Fig. 12 has the readings of its tables on [its own page](chen-fig12.md).",
        ),
        quick=quick,
        seed=seed,
    )


def all_cases(*, quick: bool, seed: int) -> Iterator[CongestionCase]:
    """Every case of the page."""
    for cases in _make_cases(quick, seed).values():
        yield from cases


def _make_cases(quick: bool, seed: int) -> dict[Key, tuple[CongestionCase]]:
    return {
        (setting.name, name, policy): (
            CHANGES[name](_reduce(case(policy, quick=quick, seed=seed, full=setting.full))),
        )
        for setting in (SETTINGS[::3] if quick else SETTINGS)
        for name in (setting.readings[:QUICK_READINGS] if quick else setting.readings)
        for policy in COMPARED
    }


def _reduce(made: CongestionCase) -> CongestionCase:
    """A case of the paper's size reduced to a fifth, with the events of 21 minutes afterwards.

    A quick one is small already, and has fewer events.
    """
    if made.scale < 1:
        return replace(made, before=200, publications=800, probe_after=30.0, similarities=0)
    of = made.workflows
    return replace(
        made,
        workflows=replace(
            of,
            subscriptions=round(SCALE * of.subscriptions),
            workflows=round(SCALE * of.workflows),
        ),
        unsubscriptions=round(SCALE * made.unsubscriptions),
        before=round(SCALE * made.before),
        publications=5_000,
        similarities=0,
        scale=SCALE,
    )


def _name_scale(quick: bool) -> str:
    return f"{100 * (QUICK if quick else SCALE):g} %"


def _list_chosen() -> str:
    return table(
        ("question", "answer", "because"),
        ((each.question, each.answer, each.because) for each in CHOSEN),
    )


# --- reporting -----------------------------------------------------------------------------------


def _rows(key: Key, found: Repeated) -> Iterator[tuple[str | int | float, ...]]:
    yield (*key, "delay_s", "mean", found.delay)
    yield (*key, "longest_queue", "core", found.core_queue)
    yield (*key, "table_boxes", "core", found.core_table)
    for broker, n in zip(CORE, found.triggered_messages(), strict=True):
        yield (*key, "triggered_messages", broker, n)
    for name, brokers in (("core", tuple(CORE)), ("inner", INNER), ("all", ())):
        yield (*key, "false_positive_share", name, found.false_positives(brokers))
        yield (*key, "dead_end_share", name, found.dead_ends(brokers))


def _pairs(found: Runs) -> Iterator[tuple[str, str, Repeated, Repeated]]:
    for setting, name, active, selective, _ in _by_reading(found):
        yield setting, name, active, selective


def _by_reading(found: Runs) -> Iterator[tuple[str, str, Repeated, Repeated, Repeated]]:
    """Each setting and reading with its outcomes under active covering, selective and ours."""
    for setting, name, policy in found:
        if policy == ACTIVE:
            active, selective, ours = (found[setting, name, each] for each in COMPARED)
            yield setting, name, active, selective, ours


def _saved(active: Repeated, other: Repeated) -> float:
    return 1 - other.core_table / active.core_table


def _comparison(found: Runs) -> str:
    return table(
        (
            "setting",
            "reading",
            "longest core queue, active, selective and ours",
            "delay of probes, active, selective and ours",
            "core table, active, selective and ours",
            "saved by selective",
            "triggered A to E, selective",
            "false positives of selective, core and inner (dead ends)",
            "the same in the core (dead ends)",
        ),
        (
            (
                setting,
                name,
                _list(f"{each.core_queue:,}" for each in (active, selective, ours)),
                _list(seconds(each.delay) for each in (active, selective, ours)),
                _list(f"{each.core_table:,.0f}" for each in (active, selective, ours)),
                share(_saved(active, selective)),
                way(selective.triggered_messages()),
                _waste(selective, (*CORE, *INNER)),
                _waste(selective, tuple(CORE)),
            )
            for setting, name, active, selective, ours in _by_reading(found)
        ),
    )


def _list(words: Iterable[str]) -> str:
    return "; ".join(words)


def _tell_ours(found: Runs) -> str:
    """In how many readings merging is better than selective pruning, and where it is not."""
    every = list(_by_reading(found))
    worse = [
        f"{setting}, {name} ({ours.core_queue:,} against {selective.core_queue:,})"
        for setting, name, _, selective, ours in every
        if ours.core_queue > selective.core_queue
    ]
    saved = [_saved(active, ours) for _, _, active, _, ours in every]
    by_selective = [_saved(active, selective) for _, _, active, selective, _ in every]
    return (
        f"Merging's longest core queue is at most selective pruning's in "
        f"{len(every) - len(worse)} of {len(every)} cases"
        f"{f'; it is longer in {join_words(worse)}' if worse else ''}. It saves "
        f"{share(min(saved))} to {share(max(saved))} of active covering's core tables, selective "
        f"pruning {share(min(by_selective))} to {share(max(by_selective))}; its false positives "
        f"are at most {share(max(ours.false_positives() for *_, ours in every))}, selective "
        f"pruning's {share(max(selective.false_positives() for _, _, _, selective, _ in every))}."
    )


def _tell_unchanged(found: Runs) -> Iterator[str]:
    """Where the readings of the history come to what was chosen."""
    for name in (REMEMBERS_FEW, NEVER_ALL_THE_WAY):
        same = [setting for setting, of, policy in found if (of, policy) == (name, SELECTIVE)]
        same = [setting for setting in same if _is_as_chosen(found, setting, name)]
        if same:
            yield (
                f"In {'; '.join(same)} it makes no difference if {name}: all tables and the "
                "number of messages are those of the chosen reading."
            )


def _is_as_chosen(found: Runs, setting: str, name: str) -> bool:
    one, other = (found[setting, each, SELECTIVE].runs[0] for each in (AS_CHOSEN, name))
    return (one.tables, one.messages) == (other.tables, other.messages)


def _waste(found: Repeated, brokers: tuple[str, ...]) -> str:
    return f"{share(found.false_positives(brokers))} ({share(found.dead_ends(brokers))})"


def _out_of_reach(found: Runs) -> str:
    """The paper's numbers beside the readings that come closest."""
    at_7, at_10 = (
        {name: (a, s) for where, name, a, s in _pairs(found) if where == setting}
        for setting in ("Fig. 7", "Fig. 10")
    )
    saved_7 = max(at_7, key=lambda name: _saved(*at_7[name]))
    saved_10 = max(at_10, key=lambda name: _saved(*at_10[name]))
    core = min(at_7, key=lambda name: at_7[name][1].false_positives(CORE))
    slower = {name: active.delay / selective.delay for name, (active, selective) in at_7.items()}
    slow = max(slower, key=slower.__getitem__)
    saves_7, saves_10 = share(_saved(*at_7[saved_7])), share(_saved(*at_10[saved_10]))
    in_core = share(at_7[core][1].false_positives(CORE))
    times = f"{times_as(slower[slow])} times"
    return table(
        ("the paper's number", "the reading that comes closest", "what it gives", "independent"),
        (
            ("core tables 50 % smaller (Fig. 7)", saved_7, saves_7, NOTHING),
            ("core tables 82 % smaller (Fig. 10)", saved_10, saves_10, NOTHING),
            ("false positives in the core 0.01 % (Fig. 7)", core, in_core, INDEPENDENT_CORE),
            ("delays 11,000 times as long (Fig. 7)", slow, times, NOTHING),
        ),
    )


def _congestion_claim(found: Runs) -> Claim:
    parts = [
        (s.core_queue / a.core_queue if a.core_queue else inf, setting, name)
        for setting, name, a, s in _pairs(found)
    ]
    worst, setting, name = max(parts)
    good = sum(part <= SLIGHT for part, _, _ in parts)
    chosen = [part for part, _, name in parts if name == AS_CHOSEN]
    as_chosen = f"{sum(part <= SLIGHT for part in chosen)} of {len(chosen)} as chosen"
    return Claim(
        "severe congestion under the traditional algorithms is virtually eliminated by selective "
        "pruning",
        "section VI",
        f"its longest core queue is at most {share(SLIGHT)} of active covering's in {good} of "
        f"{len(parts)} cases ({as_chosen}), at worst {share(worst)} ({setting}, {name})",
        good == len(parts),
    )


def _chart(found: Runs) -> str:
    def paint(sheet: Sheet) -> None:
        saved, queues = sheet.panels
        rows = list(_by_reading(found))
        labels = [f"{setting}, {name}" if name == AS_CHOSEN else name for setting, name, *_ in rows]
        places = range(len(rows))
        for policy, up, shares in (
            (SELECTIVE, -0.2, [_saved(active, other) for _, _, active, other, _ in rows]),
            (OURS, 0.2, [_saved(active, ours) for _, _, active, _, ours in rows]),
        ):
            at_rows = [place + up for place in places]
            saved.barh(at_rows, [100 * each for each in shares], 0.36, color=COLOURS[policy])
        saved.set_title("saved core tables, % (lines: paper)")
        for paper, setting in ((50, "Fig. 7"), (82, "Fig. 10")):
            at = [place for place in places if rows[place][0] == setting]
            saved.plot([paper, paper], [at[0] - 0.5, at[-1] + 0.5], color=INK, linewidth=1.2)
        for policy, mark, lengths in (
            (ACTIVE, "o", [active.core_queue for _, _, active, _, _ in rows]),
            (SELECTIVE, "o", [selective.core_queue for _, _, _, selective, _ in rows]),
            (OURS, "v", [ours.core_queue for *_, ours in rows]),
        ):
            label, colour = LABELS[policy], COLOURS[policy]
            queues.plot(lengths, places, mark, color=colour, label=label)
        queues.set_xscale("symlog", linthresh=10)
        queues.set_xlim(left=0)
        queues.set_title("longest core queue")
        saved.set_yticks(places, labels)
        queues.set_yticks(places, [])
        for axes in sheet.panels:
            axes.set_ylim(len(rows) - 0.5, -0.5)
        draw_legend(sheet, at=1)

    title = "What other readings give"
    return draw_chart("chen-readings", title, (9, 8), paint, shape=(1, 2))
