"""The page about a run of the pipeline."""

from __future__ import annotations

import re
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from plotly import graph_objects
from plotly.offline import get_plotlyjs

from distributary.report import render_run
from distributary.report.wording import SAVING_EXPLAINED
from tests.report.cases import HOSTILE
from tests.report.test_page import Outline, charts_of, without_bundle

SECTIONS = {"replay", "minutes", "receivers", "aside", "changes", "provenance"}
START = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
SHARES = ("received", "wanted", "dropped_by_session", "dropped_by_flow")


def totals_of(
    wanted: int, by_session: int, by_flow: int, sent: int, size: int | None = 100
) -> dict[str, Any]:
    counts = {
        "messages": 5_000,
        "sent": sent,
        "unplaced": 7,
        "received": wanted + by_session + by_flow,
        "wanted": wanted,
        "dropped_by_session": by_session,
        "dropped_by_flow": by_flow,
        "unserved": 0,
    }
    sized = {f"{key}_bytes": size and size * count for key, count in counts.items()}
    return {**counts, **sized}


def log_of(used: int, duplicates: int = 0, **reasons: int) -> dict[str, Any]:
    bad = sum(reasons.values())
    return {
        "source": "logs/day.parquet",
        "read": used + duplicates + bad,
        "used": used,
        "duplicates": duplicates,
        "quarantined": bad,
        "reasons": {reason.replace("_", " "): count for reason, count in reasons.items()},
    }


def manifest() -> dict[str, Any]:
    """A run on the driver, after another; the plan throws away 3,000 where flooding does 24,000."""
    return {
        "format": 1,
        "distributary": "0.4.2",
        "subscriptions": log_of(98_765, 0, no_receiver=21, unknown_action=1_210),
        "publications": log_of(5_000, 43, ts_is_not_a_time=17),
        "interest": {"pairs": 2_345, "receivers": 123, "flows": 456, "forgotten_receivers": 11},
        "window": {
            "since": "2026-03-01T08:00:00+00:00",
            "until": "2026-03-01T09:00:00+00:00",
            "seconds": 3600.0,
        },
        "rates": {
            "floor": 1 / 3600,
            "wanted": 456,
            "silent": 31,
            "unwanted": 6,
            "unwanted_messages": 1_007,
        },
        "plan": {
            "valid": True,
            "problems": [],
            "receivers": 123,
            "flows": 456,
            "sessions": 64,
            "groups": 16,
            "filtering": {
                "session_cost": 40.0,
                "flow_cost": 28.0,
                "wanted_work": 20.0,
                "excess": 48.0,
                "flooding_excess": 480.0,
                "relative_excess": 0.1,
            },
            "algorithm": "best",
            "seed": 97,
            "where": "driver",
            "driver_need": 377_500,
        },
        "replay": {
            "plan": totals_of(1_000, 1_200, 1_800, 5_001),
            "flooding": totals_of(1_000, 0, 24_000, 5_002),
            "unicast": totals_of(1_000, 0, 0, 1_000),
            "previous": totals_of(1_000, 3_333, 2_222, 5_003),
        },
        "diff": {
            "moved": 14,
            "new": 3,
            "gone": 1,
            "added": 0,
            "removed": 0,
            "subscribe": 21,
            "unsubscribe": 22,
            "join": 1,
            "leave": 2,
            "start": 0,
            "stop": 0,
            "receivers": 19,
        },
        "stages": {
            "seconds": 8.0,
            "steps": [
                {"step": "reading the publications", "seconds": 6.0, "share": 0.75, "rows": 5_060},
                {"step": "other", "seconds": 2.0, "share": 0.25, "rows": None},
            ],
        },
        "command": "distributary pipeline logs --groups 16",
    }


def first_run_on_executors() -> dict[str, Any]:
    """Filters instead of subscriptions, no sizes, and only the costs that need no pairs."""
    told = manifest()
    for key in ("subscriptions", "diff", "command", "window"):
        del told[key]
    told["filters"] = log_of(40, 0, no_filter=2)
    told["content"] = {"messages": 5_000, "unwanted": 77, "folded": 88, "sets": 99}
    told["plan"] = {"groups": 16, "algorithm": "best", "where": "executors", "rounds": 12}
    told["replay"] = {
        "plan": totals_of(1_000, 1_200, 1_800, 5_001, size=0),
        "flooding": totals_of(1_000, 0, 24_000, 5_002, size=None),
    }
    return told


def minutes_of(*offsets: int, tz: str | None = "UTC", **columns: list[int]) -> pa.Table:
    """Minutes after the start, each with the same messages unless told otherwise."""
    times = [START + timedelta(minutes=offset) for offset in offsets]
    counts = {"received": 40, "wanted": 10, "dropped_by_session": 12, "dropped_by_flow": 18}
    return pa.table(
        {
            "minute": pa.array(times, pa.timestamp("us", tz=tz)),
            **{key: columns.get(key, [count] * len(times)) for key, count in counts.items()},
        }
    )


def receivers_of(rows: dict[str, tuple[int, int, int]], **more: list[Any]) -> pa.Table:
    """{'anna': (wanted, dropped by session, dropped by flow)}."""
    sums = {name: (sum(parts), *parts) for name, parts in rows.items()}
    return pa.table(
        {
            "receiver": pa.array(list(rows), pa.string()),
            "planned": pa.array([True] * len(rows), pa.bool_()),
            "interested": pa.array([True] * len(rows), pa.bool_()),
            **{
                part: pa.array([parts[nth] for parts in sums.values()], pa.int64())
                for nth, part in enumerate(SHARES)
            },
            "unserved": pa.array([0] * len(rows), pa.int64()),
            **more,
        }
    )


MINUTES = minutes_of(*range(60))
RECEIVERS = receivers_of({f"r{nth:03d}": (10, nth, 2 * nth) for nth in range(40)})


def page_of(
    told: dict[str, Any] | None = None,
    minutes: pa.Table = MINUTES,
    receivers: pa.Table = RECEIVERS,
    plan_page: str | None = None,
) -> str:
    return render_run(manifest() if told is None else told, minutes, receivers, "a day", plan_page)


def text_of(*given: Any, **named: Any) -> str:
    return Outline(without_bundle(page_of(*given, **named))).text


def counts_in(document: Any) -> set[int]:
    """Every whole number in a document that counts something a reader is told."""
    if isinstance(document, dict):
        return set().union(
            *(
                counts_in(value)
                for key, value in document.items()
                if key not in {"format", "unplaced", "driver_need"} and not key.endswith("_bytes")
            )
        )
    return {document} if isinstance(document, int) and not isinstance(document, bool) else set()


def without(document: dict[str, Any], *path: str) -> dict[str, Any]:
    copy = deepcopy(document)
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return copy


EVERY_LOSS = [
    (*parents, key)
    for parents, part in [
        ((), manifest()),
        *(((key,), manifest()[key]) for key in manifest()),
        *((("replay", key), manifest()["replay"][key]) for key in manifest()["replay"]),
    ]
    if isinstance(part, dict)
    for key in part
]


@pytest.mark.parametrize(
    ("told", "minutes", "receivers"),
    [
        (manifest(), MINUTES, RECEIVERS),
        (first_run_on_executors(), MINUTES, RECEIVERS),
        ({}, MINUTES.slice(0, 0), RECEIVERS.slice(0, 0)),
        (manifest(), minutes_of(*range(0, 3_000_000, 7_001)), RECEIVERS),
        (manifest(), minutes_of(5, tz=None), receivers_of({"anna": (0, 0, 0)})),
        (manifest(), MINUTES.select(["minute"]), RECEIVERS.select(["receiver"])),
    ],
    ids=["usual", "executors", "nothing", "years", "one minute", "no columns"],
)
def test_page_is_whole_and_self_contained(
    told: dict[str, Any], minutes: pa.Table, receivers: pa.Table
) -> None:
    page = page_of(told, minutes, receivers)
    own = without_bundle(page)
    outline = Outline(own)
    assert not outline.open
    assert set(outline.ids()) >= SECTIONS
    assert len(outline.ids()) == len(set(outline.ids()))
    assert not re.search(r"\b(nan|inf|None)\b", outline.text)
    assert page.count(get_plotlyjs()) == 1
    assert "http://" not in own
    assert "https://" not in own
    assert "default-src 'none'" in own
    assert not any(tag in {"link", "iframe", "img"} for tag, _ in outline.elements)
    for chart in charts_of(page).values():
        graph_objects.Figure(chart)


def test_the_same_run_gives_the_same_text() -> None:
    assert page_of() == page_of()


def test_every_count_of_the_manifest_is_on_the_page() -> None:
    text = text_of()
    for count in counts_in(manifest()):
        assert f"{count:,}" in text, count


def test_rows_of_each_log_are_shown_adding_up() -> None:
    text = text_of()
    assert "Subscriptions99,996rows read = 98,765 used + 0 duplicates + 1,231 quarantined" in text
    assert "Publications5,060rows read = 5,000 used + 43 duplicates + 17 quarantined" in text


def test_the_page_says_where_the_time_went() -> None:
    text = text_of()
    assert "reading the publications6 s75.0 %5,060" in text.replace("\u202f", " ")
    assert "other2 s25.0 %–" in text.replace("\u202f", " ")


def test_headline_is_the_one_of_the_plans_own_page() -> None:
    page = page_of()
    assert "<h1>Receivers waste 90.0\u202f% less work than with flooding</h1>" in page
    assert SAVING_EXPLAINED in page


def test_headline_says_when_the_costs_are_missing() -> None:
    page = page_of(first_run_on_executors())
    assert "<h1>What this plan saves was not recorded</h1>" in page


def test_the_replay_holds_the_waste_against_floodings_and_the_intake() -> None:
    assert (
        "Receivers discard 12.5\u202f% of what they would with flooding; "
        "they want 1 in 4 messages they receive."
    ) in text_of()


@pytest.mark.parametrize(
    ("plan", "flooding", "said"),
    [
        (totals_of(0, 0, 0, 0), totals_of(0, 0, 0, 0), "Nothing that anybody wants was published"),
        (totals_of(9, 0, 0, 9), totals_of(9, 0, 9, 9), "Receivers discard nothing"),
        (totals_of(9, 0, 1, 9), totals_of(9, 0, 1, 9), "discard as much as with flooding"),
        (
            totals_of(9, 0, 1, 9),
            totals_of(9, 0, 10, 9),
            "want 90.0\u202f% of the messages they receive",
        ),
        (totals_of(0, 2, 1, 9), totals_of(0, 0, 6, 9), "none of the messages they receive"),
        (totals_of(9, 0, 1, 9), {}, "discard 10.0\u202f% of the messages they receive"),
        ({"unserved": 5}, {}, "This plan delivers nothing"),
    ],
)
def test_the_replays_sentence_copes_with_every_outcome(
    plan: dict[str, Any], flooding: dict[str, Any], said: str
) -> None:
    told = {**manifest(), "replay": {"plan": plan, "flooding": flooding}}
    sentence = re.search(
        "<strong>(Receivers|Nothing|This plan delivers)(.*?)</strong>", page_of(told)
    )
    assert sentence is not None
    assert said in sentence[1] + sentence[2]


@pytest.mark.parametrize("path", EVERY_LOSS, ids=".".join)
def test_any_key_may_be_missing(path: tuple[str, ...]) -> None:
    outline = Outline(without_bundle(page_of(without(manifest(), *path))))
    assert not outline.open
    assert not re.search(r"\b(nan|inf|None)\b", outline.text)


def test_wanted_messages_that_are_missed_are_an_alert_and_a_column() -> None:
    told = manifest()
    assert "not valid" not in text_of(told)
    told["replay"]["plan"]["unserved"] = 1_313
    told["plan"] |= {"valid": False, "problems": ["flow <x> travels nowhere"]}
    text = text_of(told)
    assert "This plan is not valid" in text
    assert "1,313 wanted messages do not reach the receivers that want them" in text
    assert "flow <x> travels nowhere" in text
    assert "missed" in text


def test_bytes_are_told_where_sizes_are_known() -> None:
    assert "2.50\u202fMB" in text_of()  # flooding receives 25,000 messages of 100 bytes
    text = text_of(first_run_on_executors())
    assert "No message has a known size" in text


def test_a_short_log_has_a_bar_for_each_minute_and_silence_is_a_gap() -> None:
    chart = charts_of(page_of(minutes=minutes_of(0, 1, 4)))["minutes"]
    wanted = chart["data"][0]  # type: ignore[index]
    assert wanted["x"] == [f"2026-03-01T08:0{minute}" for minute in range(5)]
    assert wanted["y"] == [10, 10, 0, 0, 10]


@pytest.mark.parametrize(
    ("last", "each"),
    [
        (299, "Each bar is a minute"),
        (300, "each bar is 2 minutes"),
        (24 * 60, "each bar is 5 minutes"),
        (7 * 24 * 60, "each bar is 1 hour"),
        (365 * 24 * 60, "each bar is 2 days"),
    ],
)
def test_a_long_log_has_fewer_bars_that_keep_the_total(last: int, each: str) -> None:
    minutes = minutes_of(0, last // 2, last)
    page = page_of(minutes=minutes)
    assert each in page
    wanted = charts_of(page)["minutes"]["data"][0]  # type: ignore[index]
    assert len(wanted["y"]) <= 300
    step = wanted["width"] // 60_000
    at = int(START.timestamp()) // 60
    edges = [step * (at // step + nth) for nth in range(len(wanted["y"]) + 1)]
    inside = [min(high, at + last + 1) - max(low, at) for low, high in pairwise(edges)]
    total = sum(mean * length for mean, length in zip(wanted["y"], inside, strict=True))
    assert total == pytest.approx(30, rel=1e-5)


@pytest.mark.parametrize(("received", "drawn"), [(60 * 80, True), (60 * 81, False)])
def test_floodings_mean_is_a_line_where_it_fits_and_words_where_not(
    received: int, drawn: bool
) -> None:
    told = manifest()
    told["replay"]["flooding"]["received"] = received
    page = page_of(told)
    names = [trace["name"] for trace in charts_of(page)["minutes"]["data"]]  # type: ignore[attr-defined]
    assert ("flooding, on average" in names) is drawn
    assert ("81 a minute on average, which is beyond this chart" in page) is not drawn


def test_receivers_that_throw_away_most_come_first_and_are_ten() -> None:
    text = text_of()
    listed = re.findall(r"r\d{3}", text)
    assert listed == [f"r{nth:03d}" for nth in range(39, 29, -1)]
    assert f"{39 * 3 + 10:,}" in text
    # 3 x (30 + ... + 39) of 3 x (0 + ... + 39).
    assert "44.2\u202f% falls on the 10 that discard most" in text


def test_the_distribution_counts_every_receiver_that_takes_anything_in() -> None:
    receivers = receivers_of(
        {"all": (9, 0, 0), "half": (5, 5, 0), "none": (0, 1, 2), "idle": (0, 0, 0)},
        planned=[True, True, True, False],
        interested=[True, True, False, True],
        unserved=[0, 0, 0, 8],
    )
    page = page_of(receivers=receivers)
    bars = charts_of(page)["shares"]["data"][0]["y"]  # type: ignore[index]
    assert (bars[0], bars[10], bars[19], sum(bars)) == (1, 1, 1, 3)
    for note in (
        "1 receiver without any message",
        "1 receiver with interest but not in the plan",
        "1 receiver in the plan but without interest",
        "1 receiver without some of the messages they want",
    ):
        assert note in page


def test_the_page_says_when_nothing_is_discarded() -> None:
    assert "No receiver discards anything" in page_of(receivers=receivers_of({"a": (9, 0, 0)}))


def test_what_was_quarantined_is_listed_by_log_with_the_most_frequent_fault_first() -> None:
    text = text_of()
    order = ["unknown action", "no receiver", "ts is not a time"]
    assert [text.index(reason) for reason in order] == sorted(map(text.index, order))
    for note in (
        "43 rows with an id that was seen before",
        "31 flows wanted but without messages, planned at the least rate, 1 message in 3,600",
        "6 flows that nobody wants, with 1,007 messages",
        "11 receivers not seen",
    ):
        assert note in text
    content = text_of(first_run_on_executors())
    assert "77 messages that no filter matches" in content
    assert "88 messages whose set of filters is too rare" in content


def test_many_faults_are_cut_and_clean_logs_say_so() -> None:
    told = manifest()
    told["publications"]["reasons"] = {f"fault {nth}": 1 for nth in range(100)}
    assert "Not listed: 62 more faults" in text_of(told)
    for log in ("publications", "subscriptions"):
        told[log] = log_of(10)
    assert "Every row of the logs could be used" in text_of(told)


def test_changes_are_told_in_words_and_the_first_plan_has_none() -> None:
    text = text_of()
    assert "19 receivers with a change" in text
    assert "14 moves of a flow" in text
    assert "1 time a receiver joins a group" in text
    assert "by unicast from now on" not in text
    assert "This is the first plan" in text_of(first_run_on_executors())
    same = {**manifest(), "diff": dict.fromkeys(manifest()["diff"], 0)}
    assert "this plan is the same as the previous one" in text_of(same)


def test_provenance_names_window_algorithm_seed_place_and_command() -> None:
    text = text_of()
    footer = text[text.rindex("How it was made") :]
    for fact in (
        "2026-03-01 08:00:00 UTC to 2026-03-01 09:00:00 UTC",
        "best",
        "97",
        "the driver",
        "0.4.2",
        "logs/day.parquet",
        "distributary pipeline logs --groups 16",
    ):
        assert fact in footer
    assert "the executors, in 12 rounds" in text_of(first_run_on_executors())
    listed = {**manifest(), "command": ["distributary", "pipeline", "my logs"]}
    assert "distributary pipeline 'my logs'" in text_of(listed)


@pytest.mark.parametrize(
    ("name", "target"),
    [("plan.html", "plan.html"), ("a b.html", "a%20b.html"), ("x:alert(1)", "x%3Aalert%281%29")],
)
def test_the_plans_own_page_is_linked_where_there_is_one(name: str, target: str) -> None:
    def links(page: str) -> set[str]:
        found = (given.get("href") for _, given in Outline(without_bundle(page)).elements)
        return {href for href in found if href and not href.startswith("#")}

    assert links(page_of(plan_page=name)) == {target}
    assert links(page_of()) == set()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_never_run(text: str) -> None:
    told = manifest()
    told["distributary"] = told["command"] = text
    told["publications"] |= {"source": text, "reasons": {text: 17}}
    told["window"] |= {"since": text, "until": text}
    told["plan"] |= {"algorithm": text, "where": text, "seed": text}
    receivers = receivers_of({text: (1, 2, 3)})
    hostile = render_run(told, MINUTES, receivers, text)
    plain = render_run(manifest(), MINUTES, receivers_of({"anna": (1, 2, 3)}), "a day")
    outline, expected = Outline(without_bundle(hostile)), Outline(without_bundle(plain))
    assert [tag for tag, _ in outline.elements] == [tag for tag, _ in expected.elements]
    assert outline.scripts == expected.scripts
    assert text in "".join(outline.words)
