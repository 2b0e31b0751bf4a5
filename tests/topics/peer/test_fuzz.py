"""Whatever peers and clients send, a peer refuses it or takes it, and goes on."""

from __future__ import annotations

import pytest

from tests.topics.peer.fuzzing import collect_messages, fuzz


def test_fuzzed_messages_break_no_peer() -> None:
    corpus = collect_messages(range(4))
    assert len(corpus[0]) > 30  # kinds of messages
    counts = fuzz(0, 6_000, corpus)
    assert counts.total() == 6_000
    assert min(counts["refused"], counts["taken"]) > 500


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10, 18))
def test_two_million_fuzzed_messages(first: int) -> None:
    """As many go to services on NATS: see `tests/topics/nats/test_fuzz.py`."""
    corpus = collect_messages(range(first, first + 8))
    assert fuzz(first * 1_000_000, 250_000, corpus).total() == 250_000
