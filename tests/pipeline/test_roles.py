"""Which columns of a log are the time, the receiver and so on, without Spark."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.errors import InputError
from distributary.pipeline.profiles import ColumnProfile, RowProfile, parse_row
from distributary.pipeline.roles import find_kind, find_roles
from distributary.pipeline.shapes import LogShape
from tests.examples import up_to
from tests.pipeline.written import Writing, publications, subscriptions, write_row, writings


def profile(rows: Sequence[dict[str, Any]]) -> tuple[ColumnProfile, ...]:
    found = RowProfile()
    found.add_rows(parse_row(json.dumps(row)) for row in rows)
    return found.list_columns()


def profile_csv(text: str) -> tuple[ColumnProfile, ...]:
    found = RowProfile()
    found.add_rows(list(csv.DictReader(io.StringIO(text))))
    return found.list_columns()


@pytest.mark.parametrize("kind", ["subscriptions", "publications"])
def test_columns_with_usual_names_are_found_wherever_they_are(kind: Any) -> None:
    log = subscriptions(80) if kind == "subscriptions" else publications(80)

    @up_to(400, by_default=60)
    @given(writings(kind))
    def check(writing: Writing) -> None:
        columns = profile([write_row(row, writing) for row in log])
        assert find_kind(columns, {})[0] == kind
        roles = find_roles("log", kind, columns, LogShape())
        found = {name: role.path for name, role in roles.columns.items() if role.path}
        assert found == {name: path for name, path in writing.paths.items() if name in found}
        assert set(found) >= set(writing.paths)

    check()


COLUMNS = "a,b,c\nx1,y1,1741000000\nx2,y1,1741000001\nx1,y2,1741000002\n"


def test_what_cannot_be_told_by_names_is_a_guess_that_says_so() -> None:
    roles = find_roles("log", "publications", profile_csv(COLUMNS), LogShape())
    assert {name: role.path for name, role in roles.columns.items()} == {"ts": "c", "flow": "a"}
    assert any("'a' is a guess; it could be 'b'" in doubt for doubt in roles.doubts)
    assert any("'c' is taken as the ts" in doubt for doubt in roles.doubts)
    roles = find_roles("log", "subscriptions", profile_csv(COLUMNS), LogShape())
    assert {name: role.path for name, role in roles.columns.items()} == {
        "ts": "c",
        "receiver": "a",
        "flow": "b",
        "action": "",
    }


def test_two_columns_of_equal_right_are_a_guess() -> None:
    columns = profile_csv("time,topic,symbol\n1741000000,t,IBM\n1741000001,u,SAP\n")
    roles = find_roles("log", "publications", columns, LogShape())
    assert roles.columns["flow"].path == "topic"
    assert "'symbol' could be it as well" in roles.doubts[0]


def test_what_is_given_is_not_guessed() -> None:
    given = LogShape({"flow": "b", "ts": "c"})
    roles = find_roles("log", "publications", profile_csv(COLUMNS), given)
    assert roles.make_shape(given) == given
    assert roles.doubts == ()


def test_a_format_that_is_given_is_for_the_column_named_for_times() -> None:
    given = LogShape(time_format="d.M.yyyy", time_zone="Europe/Berlin")
    columns = profile_csv("topic,date,start\na,1.2.2025,2025-01-01\nb,3.4.2025,2025-01-01\n")
    roles = find_roles("log", "publications", columns, given)
    assert roles.columns["ts"].path == "date"
    assert roles.columns["ts"].why == "in the format 'd.M.yyyy'"
    assert roles.make_shape(given).time_format == "d.M.yyyy"


def test_a_documented_name_wins_unless_its_values_cannot_be_meant() -> None:
    text = "ts,at,flow,topic\nnever,2025-03-03,a,b\nnever,2025-03-04,c,d\n"
    roles = find_roles("log", "publications", profile_csv(text), LogShape())
    assert roles.make_shape(LogShape()).columns == {"ts": "at"}


def test_columns_that_would_spoil_rows_are_left_out() -> None:
    rows = [
        {"ts": 1_741_000_000 + n, "flow": f"f{n % 3}", "id": n % 2, "size": "XL"} for n in range(20)
    ]
    shape = find_roles("log", "publications", profile(rows), LogShape()).make_shape(LogShape())
    assert shape.columns == {"id": "", "size": ""}


def test_offsets_are_ids_only_in_one_partition() -> None:
    rows = [
        {"topic": "t", "partition": n % 2, "offset": n, "timestamp": 1_741_000_000_000 + n}
        | {"value": json.dumps({"symbol": f"f{n % 3}"})}
        for n in range(20)
    ]
    found = find_roles("log", "publications", profile(rows), LogShape()).columns
    assert (found["flow"].path, "id" in found) == ("value.symbol", False)
    one = [row | {"partition": 0} for row in rows]
    assert (
        find_roles("log", "publications", profile(one), LogShape()).columns["id"].path == "offset"
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("SUB", "UNSUB"), (("SUB",), ("UNSUB",))),
        (
            ("client.subscribe", "client.unsubscribe"),
            ({"client.subscribe"}, {"client.unsubscribe"}),
        ),
        (("1", "0"), (("1",), ("0",))),
        (("+", "-"), (("+",), ("-",))),
        (("Joined", "Left"), (("Joined",), ("Left",))),
        (("subscribe", "unsubscribe"), (("subscribe",), ("unsubscribe",))),
    ],
)
def test_words_for_actions_are_understood(words: tuple[str, ...], expected: Any) -> None:
    rows = [{"user": f"u{n}", "topic": f"t{n % 3}", "op": words[n % 2]} for n in range(9)]
    shape = find_roles("log", "subscriptions", profile(rows), LogShape()).make_shape(LogShape())
    assert (set(shape.subscribe), set(shape.unsubscribe)) == tuple(map(set, expected))


def test_unknown_words_are_guessed_by_their_numbers_and_said() -> None:
    rows = [{"user": f"u{n}", "topic": "tu"[n % 2], "action": "AB"[n % 3 == 0]} for n in range(9)]
    roles = find_roles("log", "subscriptions", profile(rows), LogShape())
    shape = roles.make_shape(LogShape())
    assert (shape.subscribe, shape.unsubscribe) == (("A",), ("B",))
    assert any("'A' is taken as subscribe and 'B' as unsubscribe" in one for one in roles.doubts)


def test_a_flag_of_another_meaning_is_no_action() -> None:
    rows = [
        {"user": f"u{n}", "topic": "tu"[n % 2], "premium": n % 2, "country": ["IN", "NO"][n % 2]}
        for n in range(9)
    ]
    roles = find_roles("log", "subscriptions", profile(rows), LogShape())
    assert roles.columns["action"].path == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("flow,price\na,1\nb,2\n", "no column holds times of 1990 to 2100, of 'flow', 'price'"),
        ('time,flow\n"Mon, 3 Mar 2025",a\n', "'time' begin with names of days"),
        ("ts,at\n1741000000,2025-01-01\n", "no column can be the flow, of 'ts', 'at'"),
    ],
)
def test_a_log_without_what_it_needs_is_said_in_one_line(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        find_roles("log", "publications", profile_csv(text), LogShape())
    assert "--column" in str(caught.value)
    assert "\n" not in str(caught.value)


ROWS = st.lists(
    st.dictionaries(
        st.sampled_from(["a", "b", "a.b"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=3),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("b"), inner),
            max_leaves=4,
        ),
    )
    | st.none(),
    max_size=12,
)


@given(ROWS, st.integers(0, 12))
def test_profiles_of_parts_add_up_to_that_of_the_whole(rows: list[Any], cut: int) -> None:
    read = [None if row is None else parse_row(json.dumps(row)) for row in rows]
    whole, parts = RowProfile(), RowProfile()
    whole.add_rows(read)
    for some in (read[:cut], read[cut:]):
        part = RowProfile()
        part.add_rows(some)
        parts.merge(part)
    assert {one.path: one for one in parts.list_columns()} == {
        one.path: one for one in whole.list_columns()
    }
    assert (parts.rows, parts.unread) == (whole.rows, whole.unread)


def test_different_values_are_counted_exactly_if_few_and_nearly_if_many() -> None:
    small, large = RowProfile(), RowProfile()
    for number in range(60_000):
        part = large if number % 600 else small
        part.add_rows([{"few": str(number % 900), "many": str(number % 50_000)}])
    small.merge(large)
    few, many = small.list_columns()
    assert (few.distinct, few.exact) == (900, True)
    assert not many.exact
    assert 45_000 < many.distinct < 55_000


def test_a_path_is_not_the_name_of_another_column() -> None:
    columns = profile([{"a": {"b": 1, "c": 2}, "a.b": 3, " d": 4}])
    assert [one.path for one in columns] == ["a", "$.a.b", "a.c", "$['a.b']", "$[' d']"]
