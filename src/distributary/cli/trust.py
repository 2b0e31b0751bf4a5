"""The certificates and tokens of a service that others connect to."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from distributary.machines.real import TlsFiles
    from distributary.machines.real.trust import Trust

__all__ = ["make_tls", "make_trust"]


def make_tls(who: str, cert: Path | None, key: Path | None, ca: Path | None) -> TlsFiles | None:
    """The TLS files of a broker or peer, if any are given."""
    from distributary.machines.real import TlsFiles

    if cert is None:
        if key or ca:
            raise typer.BadParameter(
                f"a {who} with TLS needs its certificate", param_hint="'--tls-cert'"
            )
        return None
    return TlsFiles(cert, key, ca)


def make_trust(ca: Path | None, tokens: Path | None, roles: Collection[str]) -> Trust:
    """Whom to believe: who has a certificate of the authority, or one of the tokens."""
    from distributary.machines.real import read_tokens
    from distributary.machines.real.trust import Trust

    known = None if tokens is None else read_tokens(tokens, roles)
    return Trust(certificates=ca is not None, tokens=known)
