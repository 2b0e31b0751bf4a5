"""Fingerprints of inputs: equal content has equal fingerprints, whatever file it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from distributary.model import Interest, Plan, Rates


def fingerprint(content: Interest | Rates | Plan) -> str:
    """ "sha256:" and the hash of all names and numbers, in their sorted order."""
    digest = hashlib.sha256()
    for piece in _list_pieces(content):
        # The length comes first, so that different pieces never give the same bytes.
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)
    return f"sha256:{digest.hexdigest()}"


def _list_pieces(content: Interest | Rates | Plan) -> Iterable[bytes]:
    if isinstance(content, Interest):
        return _interest(content)
    return _rates(content) if isinstance(content, Rates) else _plan(content)


def _plan(plan: Plan) -> Iterable[bytes]:
    yield b"plan"
    yield from _names(plan.receivers)
    yield from _names(plan.flows)
    for numbers in (
        plan.session_group,
        plan.placement_flow,
        plan.placement_session,
        plan.subscription_receiver,
        plan.subscription_session,
        plan.unicast_receiver,
        plan.unicast_flow,
    ):
        yield numbers.astype("<i4").tobytes()


def _interest(interest: Interest) -> Iterable[bytes]:
    yield b"interest"
    yield from _names(interest.receivers)
    yield from _names(interest.flows)
    yield interest.flow_offsets.astype("<i8").tobytes()
    yield interest.flow_receivers.astype("<i4").tobytes()


def _rates(rates: Rates) -> Iterable[bytes]:
    yield b"rates"
    yield from _names(rates.flows)
    yield rates.rate.astype("<f8").tobytes()
    for word, values in ((b"size", rates.size), (b"peak", rates.peak)):
        if values is not None:
            yield word + values.astype("<f8").tobytes()


def _names(names: tuple[str, ...]) -> Iterable[bytes]:
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    yield np.array([len(name) for name in encoded], "<i8").tobytes()
    yield b"".join(encoded)
