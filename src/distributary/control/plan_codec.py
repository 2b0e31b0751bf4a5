"""A plan as bytes, for the store of plans.

The same plan has the same bytes, so its name in the store can be made of them: whoever stores it
again, even a service that was replaced meanwhile, changes nothing.
"""

from __future__ import annotations

import zlib
from hashlib import sha256

import msgspec
import numpy as np

from distributary.model import IndexArray, Plan

__all__ = ["PlanCodecError", "decode_plan", "encode_plan", "name_plan"]

_FORMAT = 1
_LEVEL = 3  # of zlib: names repeat, so that higher levels gain little
_MOST_BYTES = 1 << 30  # of a plan that is not compressed


class PlanCodecError(ValueError):
    """Bytes that are no plan, or one of another version of distributary."""


class _Encoded(msgspec.Struct, array_like=True, frozen=True):
    """Arrays are int32, little-endian."""

    format: int
    receivers: tuple[str, ...]
    flows: tuple[str, ...]
    placement_flow: bytes
    placement_session: bytes
    session_group: bytes
    subscription_receiver: bytes
    subscription_session: bytes
    unicast_receiver: bytes
    unicast_flow: bytes


_ARRAYS = (
    "placement_flow",
    "placement_session",
    "session_group",
    "subscription_receiver",
    "subscription_session",
    "unicast_receiver",
    "unicast_flow",
)
_decoder = msgspec.msgpack.Decoder(_Encoded)


def encode_plan(plan: Plan) -> bytes:
    """Encode a plan."""
    arrays = {name: _encode_array(getattr(plan, name)) for name in _ARRAYS}
    encoded = _Encoded(_FORMAT, plan.receivers, plan.flows, **arrays)
    return zlib.compress(msgspec.msgpack.encode(encoded), _LEVEL)


def decode_plan(data: bytes) -> Plan:
    """Decode a plan; raises `PlanCodecError` if the bytes are none, or are damaged."""
    try:
        found = _decoder.decode(_decompress(data))
        _check_format(found.format)
        arrays = {name: _decode_array(getattr(found, name)) for name in _ARRAYS}
        return Plan(receivers=found.receivers, flows=found.flows, **arrays)
    except PlanCodecError:
        raise
    except (ValueError, zlib.error, RecursionError) as error:
        raise PlanCodecError(f"the bytes are no plan ({error})") from None


def name_plan(plan: Plan) -> str:
    """The name of a plan in the store: a fingerprint of its content."""
    return sha256(encode_plan(plan)).hexdigest()[:32]


def _check_format(number: int) -> None:
    if number != _FORMAT:
        raise PlanCodecError(
            f"the plan has format {number}, and this version reads {_FORMAT}; "
            "use the version that wrote it"
        )


def _encode_array(array: IndexArray) -> bytes:
    return np.ascontiguousarray(array, dtype="<i4").tobytes()


def _decode_array(data: bytes) -> IndexArray:
    return np.frombuffer(data, dtype="<i4").astype(np.int32)


def _decompress(data: bytes) -> bytes:
    """Decompress, but not something that would fill the memory."""
    engine = zlib.decompressobj()
    found = engine.decompress(data, _MOST_BYTES)
    if engine.unconsumed_tail or not engine.eof:
        raise PlanCodecError("the bytes are no whole plan, or one of more than a gigabyte")
    return found
