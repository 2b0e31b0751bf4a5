"""What a broker saves comes back as it was, or somebody is told."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributary.content.durable import Recovery
from distributary.content.events import ContentEvent
from distributary.content.history import Seen
from distributary.content.messages import Name, Publication
from distributary.content.outbox import Gap, OutboxItem
from distributary.content.protocol import LinkFact
from distributary.content.sessions import SessionRecord
from distributary.content.state_codec import StateCodec
from distributary.content.store import BrokerStore
from distributary.errors import StateError
from distributary.machines import Save
from distributary.machines.real import Store
from distributary.matching import parse_filter
from distributary.model import Filter, Schema
from tests.content.worlds import SCHEMA as PAIRS
from tests.content.worlds import box
from tests.matching.schemas import EVENTS, SCHEMA, conditions, residual_tests, single_tests

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NUMBERS = st.one_of(st.integers(-3, 3), st.integers(-(2**80), 2**80))
FLOATS = st.floats(allow_nan=False)
NAMES = st.builds(Name, TEXTS, st.integers(0, 2**63 - 1))
KEYS = st.tuples(TEXTS, st.one_of(TEXTS, st.integers(0, 2**60), NAMES), NAMES)
FILTERS = conditions(st.one_of(single_tests(), residual_tests())).map(
    lambda text: parse_filter(text, SCHEMA)
)
PUBLICATIONS = st.builds(
    Publication,
    st.builds(
        ContentEvent,
        NUMBERS,
        st.integers(0, len(EVENTS) - 1).map(lambda at: SCHEMA.keys(EVENTS[at])),
        FLOATS,
        TEXTS,
        st.binary(max_size=5),
    ),
    NAMES,
    NUMBERS,
    FLOATS,
    NUMBERS,
)
VALUES = st.recursive(
    st.one_of(
        *(TEXTS, NUMBERS, st.booleans(), st.binary(max_size=5), NAMES, FILTERS, PUBLICATIONS),
        st.builds(Seen, NAMES, FLOATS, NUMBERS, FLOATS),
        st.builds(
            SessionRecord,
            *(NUMBERS, FLOATS, st.sampled_from(["wait", "disconnect"])),
            *(NUMBERS, NUMBERS),
        ),
        st.builds(OutboxItem, PUBLICATIONS, st.lists(NUMBERS, max_size=3).map(tuple)),
        st.builds(Gap, NUMBERS),
        st.builds(LinkFact, TEXTS, TEXTS, NUMBERS, st.booleans()),
    ),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=5,
)


def with_types(value: Any) -> Any:
    """A value with the types of all its parts, since 1 equals True and a tuple a name."""
    if isinstance(value, tuple):
        return type(value), tuple(map(with_types, value))
    return type(value), value


@settings(max_examples=200)
@given(KEYS, VALUES)
def test_what_is_saved_is_read_as_it_was(key: tuple[Any, ...], value: object) -> None:
    codec = StateCodec(SCHEMA)
    assert with_types(codec.decode_key(codec.encode_key(key))) == with_types(key)
    assert with_types(codec.decode(codec.encode(value))) == with_types(value)


@given(st.lists(PUBLICATIONS, min_size=1, max_size=3), st.data())
def test_items_that_share_a_publication_are_encoded_as_each_on_its_own(
    publications: list[Publication], data: st.DataObject
) -> None:
    codec = StateCodec(SCHEMA)
    for number in range(6):
        item = OutboxItem(data.draw(st.sampled_from(publications)), (number,))
        assert codec.encode(item) == StateCodec(SCHEMA).encode(item)
        assert codec.decode(codec.encode(item)) == item


def test_a_value_of_an_unknown_type_is_not_saved() -> None:
    with pytest.raises(TypeError, match="a broker cannot save <object"):
        StateCodec(SCHEMA).encode((1, object()))


@given(st.binary(max_size=40))
def test_bytes_that_are_no_value_are_refused(data: bytes) -> None:
    with suppress(ValueError):  # and nothing else
        StateCodec(PAIRS).decode(data)


def test_a_value_of_a_later_version_is_refused() -> None:
    with pytest.raises(ValueError, match="not a saved value: "):
        StateCodec(PAIRS).decode(b"\x92\x63\x01")


def test_equal_tests_of_many_filters_are_one_object() -> None:
    codec = StateCodec(PAIRS)
    filters = [codec.decode(codec.encode(box((1, 3), (0, at)))) for at in (2, 3)]
    one, other = (each.boxes[0].tests[0] for each in filters if isinstance(each, Filter))
    assert one is other


# --- stores --------------------------------------------------------------------------------------

SAVED: dict[tuple[Any, ...], object] = {
    ("own", "ann", "subscription", 1): (Name("b", 3), box((0, 2))),
    ("own", "ünï / \n", "promise", 2): (Name("b", 4), box((0, 6))),
    ("served", Name("a", 1)): 7,
    **{("heard", "a", Name("a", n)): ("subscription", box((n, n + 1))) for n in range(5)},
}


def save(folder: Path, values: dict[tuple[Any, ...], object], schema: Schema = PAIRS) -> Recovery:
    with Store(folder) as store:
        state = BrokerStore(store, "b", schema)
        recovery = state.recover()
        state.save([Save(key, value) for key, value in values.items()])
        return recovery


def recover(folder: Path, name: str = "b", schema: Schema = PAIRS) -> tuple[Recovery, list[str]]:
    with Store(folder) as store:
        state = BrokerStore(store, name, schema)
        return state.recover(), state.reports


def test_each_start_is_a_new_incarnation_with_all_that_was_saved(tmp_path: Path) -> None:
    assert save(tmp_path, SAVED) == Recovery(1, {})
    gone = ("served", Name("a", 1))
    assert save(tmp_path, {gone: None}) == Recovery(2, SAVED)
    found, reports = recover(tmp_path)
    assert found == Recovery(3, {key: value for key, value in SAVED.items() if key != gone})
    assert reports == []


def test_the_state_of_another_broker_or_schema_is_refused(tmp_path: Path) -> None:
    save(tmp_path, SAVED)
    with pytest.raises(StateError, match="is the state of the broker 'b', not of 'c'; give"):
        recover(tmp_path, "c")
    with pytest.raises(StateError, match="was written under another schema; use"):
        recover(tmp_path, schema=SCHEMA)
    assert recover(tmp_path)[0] == Recovery(2, SAVED)


def test_a_row_that_cannot_be_read_is_an_error_in_words(tmp_path: Path) -> None:
    save(tmp_path, SAVED)
    with Store(tmp_path) as store:
        store.put('["own","ann"', b"\x93\x63\x01\x02")
    with pytest.raises(StateError, match="that this version of distributary cannot read"):
        recover(tmp_path)


def test_a_damaged_row_of_a_neighbour_is_set_aside_and_any_other_an_error(tmp_path: Path) -> None:
    save(tmp_path, SAVED)
    whole = (tmp_path / "state.db").read_bytes()
    chance = random.Random(5)
    outcomes = set()
    for at in chance.sample(range(len(whole)), 400):
        data = bytearray(whole)
        data[at] ^= 1 << chance.randrange(8)
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / "state.db").write_bytes(data)
        try:
            found, reports = recover(folder)
        except StateError:
            outcomes.add("an error")
            continue
        missing = {key: value for key, value in SAVED.items() if key not in found.saved}
        assert all(key[0] == "heard" for key in missing)
        assert len(reports) == len(missing)
        assert {**found.saved, **missing} == SAVED
        outcomes.add("set aside" if missing else "as it was")
        assert recover(folder) == (Recovery(found.incarnation + 1, found.saved), [])
    assert outcomes == {"an error", "set aside", "as it was"}


def test_a_store_gives_unused_space_back(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for at in range(50):
            store.put(str(at), bytes(1_000_000))
        for at in range(49):
            store.remove(str(at))
        store.compact()
        store.flush()
        assert (tmp_path / "state.db").stat().st_size < 3_000_000
        assert [key for key, _ in store.rows()] == ["49"]
        store.compact()
