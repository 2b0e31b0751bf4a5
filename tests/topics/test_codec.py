"""Every message as bytes and back."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.topics import codec, messages
from distributary.topics.numbers import MOST

KINDS = [
    *messages.OVERHEAD,
    messages.Event,
    messages.Repair,
    *(codec.Put, codec.Taken, codec.Expect, codec.NoTopic, codec.Create, codec.Created),
    *(codec.Expired, codec.Resume, codec.Beat, codec.Pulse, codec.Forgotten, codec.Bye),
]
st.register_type_strategy(float, st.floats(0.0, allow_infinity=False))
st.register_type_strategy(int, st.integers(0, MOST))
st.register_type_strategy(str, st.text(st.characters(codec="utf-8")))


def fields_of(kind: type[Any]) -> dict[str, Any]:
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return {one.name: hints[one.name] for one in fields(kind)}
    return {one.name: one.type for one in msgspec.structs.fields(kind)}


def without_bounds(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_what_is_encoded_comes_back(kind: type[Any], data: st.DataObject) -> None:
    made = {name: data.draw(st.from_type(hint)) for name, hint in fields_of(kind).items()}
    message = kind(**made)
    assert codec.decode(codec.encode("who", message)) == ("who", message)


@pytest.mark.parametrize("kind", KINDS)
@given(
    count=st.one_of(st.integers(-(2**63), -1), st.integers(MOST + 1, 2**64 - 1)),
    flow=st.sampled_from([float("nan"), float("inf"), float("-inf")]),
)
def test_a_number_out_of_range_is_refused(kind: type[Any], count: int, flow: float) -> None:
    """Whatever is kept of a message must be fit to be written, read again and counted on."""
    plain = {int: 1, float: 1.0, str: "", bytes: b"", bool: True}
    hints = fields_of(kind)
    for name, hint in hints.items():
        bad = {int: count, float: flow}.get(without_bounds(hint))
        if bad is not None:
            given = {other: plain.get(without_bounds(hints[other]), ()) for other in hints}
            with pytest.raises(ValueError, match="Expected"):
                codec.decode(codec.encode("who", kind(**given | {name: bad})))


def test_a_number_out_of_range_in_a_part_of_a_message_is_refused() -> None:
    for flow in (-1.0, float("nan"), float("inf")):
        tell = messages.Tell((messages.News(messages.TopicFlow("t", flow), True),), (), ())
        with pytest.raises(ValueError, match="Expected"):
            codec.decode(codec.encode("who", tell))


@given(st.binary(max_size=64))
def test_other_bytes_are_refused(data: bytes) -> None:
    try:
        codec.decode(data)
    except ValueError:
        return
    raise AssertionError(f"{data!r} is no message of ours")


def test_a_kind_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="no message 'Gone'"):
        codec.decode(codec.encode("who", messages.Gone("somebody")))


def test_a_carriage_change_keeps_its_name_on_the_wire() -> None:
    kind, *_ = msgspec.msgpack.decode(codec.encode("who", messages.CarriageChange(1, (), 0.0)))
    assert kind == "Change"
    assert "Change" in messages.OVERHEAD_KINDS
