"""`server.json` in a state folder: where its embedded server is, and how it lets clients in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec

from distributary.errors import StateError

__all__ = ["ServerRecord", "read_server_file", "write_private", "write_server_file"]

_NAME = "server.json"


class ServerRecord(msgspec.Struct, frozen=True):
    """An embedded server. Its token and its name are new with each start."""

    url: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]
    token: str
    name: str = ""
    monitor: str = ""  # the address of its monitoring pages, if it has any


def read_server_file(folder: Path) -> ServerRecord | None:
    """The server that was started last for a folder, if there ever was one."""
    path = folder / _NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=ServerRecord)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError.from_os(path, error, doing="read") from error
    except (ValueError, RecursionError):
        raise StateError(
            str(path), "does not say where a server is", "start the channel service again"
        ) from None


def write_server_file(folder: Path, record: ServerRecord) -> None:
    """Say where the server of a folder is, to this user alone."""
    temporary = folder / f".{_NAME}.tmp"
    try:
        write_private(temporary, msgspec.json.encode(record))
        temporary.replace(folder / _NAME)
    except OSError as error:
        raise StateError.from_os(folder / _NAME, error) from error


def write_private(path: Path, data: bytes) -> None:
    """Write a file that no other user can read, at any moment."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
