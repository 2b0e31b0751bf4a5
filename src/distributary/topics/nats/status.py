"""Requests the status of a running service and of its NATS server."""

from __future__ import annotations

import asyncio
import json
from http.client import HTTPException
from typing import Any
from urllib.request import urlopen

import msgspec
import nats.errors
from nats.aio.client import Client

from distributary.errors import LiveError
from distributary.topics.errors import ServiceAwayError, hide_secrets
from distributary.topics.nats.subjects import Subjects
from distributary.topics.status import TopicStatus

__all__ = ["ServerStatus", "fetch_server_status", "fetch_status"]


async def fetch_status(nc: Client, subjects: Subjects, within: float = 5.0) -> TopicStatus:
    """Request the status of a running service; raises `ServiceAwayError` if there is none."""
    deadline = asyncio.get_running_loop().time() + within
    while True:
        left = deadline - asyncio.get_running_loop().time()
        try:
            answer = await nc.request(subjects.status, b"", timeout=max(left, 0.01))
            return msgspec.msgpack.decode(answer.data, type=TopicStatus)
        except nats.errors.NoRespondersError:
            if left < 0.2:
                raise ServiceAwayError(subjects.prefix, within) from None
            await asyncio.sleep(0.1)
        except TimeoutError:
            raise ServiceAwayError(subjects.prefix, within) from None
        except (ValueError, RecursionError):
            raise LiveError(
                f"the answer under {subjects.prefix!r} is not from a channel service of this "
                "version; check who else uses the prefix, or use the version that runs there"
            ) from None


# --- the NATS server -----------------------------------------------------------------------------


class ServerStatus(msgspec.Struct, frozen=True):
    """What a NATS server reports on its monitoring pages."""

    version: str
    connections: int
    subscriptions: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    mem: int

    def document(self) -> dict[str, Any]:
        """The status as plain values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


async def fetch_server_status(monitor: str, within: float = 5.0) -> ServerStatus:
    """Read a server's monitoring page; raises `LiveError` if there is none."""

    def read() -> Any:
        with urlopen(f"{monitor}/varz", timeout=within) as page:
            return json.load(page)

    try:
        return msgspec.convert(await asyncio.to_thread(read), ServerStatus)
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise LiveError(
            f"{hide_secrets(monitor)}: no monitoring page of a NATS server answers ({said}); check "
            "the address, or omit it"
        ) from error
