"""`server.json` in a state folder: the address and the token of its embedded server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec

from distributary.errors import StateError

__all__ = ["ServerRecord", "read_server_file", "write_private", "write_server_file"]

_NAME = "server.json"


class ServerRecord(msgspec.Struct, frozen=True):
    """An embedded server; its token and its name change with each start.

    Where it has users, the token is the password of `user`, who may do everything.
    """

    url: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]
    token: str
    name: str = ""
    monitor: str = ""  # the address of its monitoring pages, if it has any
    user: str = ""


def read_server_file(folder: Path) -> ServerRecord | None:
    """Read which server was last started for a folder; None if none ever was."""
    path = folder / _NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=ServerRecord)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError.from_os(path, error, doing="read") from error
    except (ValueError, RecursionError):
        raise StateError(
            str(path), "has no address of a server", "start the service again"
        ) from None


def write_server_file(folder: Path, record: ServerRecord) -> None:
    """Record the server of a folder, readable by this user only."""
    temporary = folder / f".{_NAME}.tmp"
    try:
        write_private(temporary, msgspec.json.encode(record))
        temporary.replace(folder / _NAME)
    except OSError as error:
        raise StateError.from_os(folder / _NAME, error) from error


def write_private(path: Path, data: bytes) -> None:
    """Write a file that other users can read at no moment."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
