"""Every message as bytes and back."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributary.live import codec
from distributary.protocol.topics import messages

KINDS = [
    *messages.OVERHEAD,
    messages.Event,
    messages.Repair,
    *(codec.Put, codec.Taken, codec.Expect, codec.NoTopic, codec.Create, codec.Created),
    *(codec.Expired, codec.Beat, codec.Pulse, codec.Forgotten, codec.Bye),
]
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(int, st.integers(-(2**63), 2**63))
st.register_type_strategy(str, st.text(st.characters(codec="utf-8")))


def fields_of(kind: type[Any]) -> dict[str, Any]:
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return {one.name: hints[one.name] for one in fields(kind)}
    return {one.name: one.type for one in msgspec.structs.fields(kind)}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_what_is_encoded_comes_back(kind: type[Any], data: st.DataObject) -> None:
    made = {name: data.draw(st.from_type(hint)) for name, hint in fields_of(kind).items()}
    message = kind(**made)
    assert codec.decode(codec.encode("who", message)) == ("who", message)


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
