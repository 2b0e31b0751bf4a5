"""Services that stand by answer a subject, so that the one that serves can count them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from distributary.control.nats.layout import Layout

__all__ = ["answer_as_stand_by", "count_stand_bys"]

_ANSWER_WITHIN = 0.5  # seconds


@asynccontextmanager
async def answer_as_stand_by(nc: Client, layout: Layout) -> AsyncIterator[None]:
    """Be counted while the block runs."""
    name = secrets.token_hex(8).encode()

    async def answer(message: Msg) -> None:
        with suppress(nats.errors.Error):
            await message.respond(name)

    subscription = await nc.subscribe(layout.stand_bys, cb=answer)
    try:
        yield
    finally:
        with suppress(nats.errors.Error):
            await subscription.unsubscribe()


async def count_stand_bys(nc: Client, layout: Layout) -> int:
    """Count those that answer in time."""
    names: set[bytes] = set()
    inbox = nc.new_inbox()

    async def hear(message: Msg) -> None:
        if message.data:  # not "no responders"
            names.add(message.data)

    subscription = await nc.subscribe(inbox, cb=hear)
    try:
        await nc.publish(layout.stand_bys, b"", reply=inbox)
        await asyncio.sleep(_ANSWER_WITHIN)
    finally:
        with suppress(nats.errors.Error):
            await subscription.unsubscribe()
    return len(names)
