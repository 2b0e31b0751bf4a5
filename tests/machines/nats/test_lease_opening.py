"""A lease is looked for again while JetStream does not answer, as of a suspended server."""

from __future__ import annotations

import asyncio

import nats.errors
import nats.js.errors
import pytest

from distributary.machines.nats import jetstream
from distributary.machines.nats.lease import KeptLease


class Buckets:
    """A JetStream that fails some times before it has a bucket."""

    def __init__(self, errors: list[Exception]) -> None:
        self.errors = errors

    async def key_value(self, bucket: str) -> object:
        if self.errors:
            raise self.errors.pop(0)
        return object()


def open_lease(errors: list[Exception]) -> None:
    asyncio.run(KeptLease(Buckets(errors), "lease", RuntimeError).open())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error", [nats.errors.TimeoutError(), nats.js.errors.ServiceUnavailableError()]
)
def test_it_opens_once_the_server_answers(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "_PAUSE", 0.0)
    open_lease([error] * 3)


def test_it_gives_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream, "_PAUSE", 0.0)
    with pytest.raises(nats.errors.TimeoutError):
        open_lease([nats.errors.TimeoutError()] * 4)
