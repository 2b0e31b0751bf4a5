"""TLS for connections, and what a certificate proves.

All processes of a network trust one certificate authority, usually their own. A certificate proves
each of its subject alternative names (DNS names, IP addresses, addresses of mail, URIs) and its
common name, and the organizational units of its subject. Names are compared exactly; there are no
wildcards.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributary.errors import LiveError

__all__ = ["Proof", "TlsError", "TlsFiles", "read_proof"]

_NAMES = frozenset({"DNS", "IP Address", "email", "URI"})


class TlsError(LiveError):
    """The TLS file at `path` cannot be used."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}; check the file, which must be in PEM format")


@dataclass(frozen=True, slots=True)
class Proof:
    """What a connection proves about the peer at `address`.

    `names` and `units` are those of its certificate, and empty without one.
    """

    address: str
    encrypted: bool = False
    names: frozenset[str] = frozenset()
    units: frozenset[str] = frozenset()

    @property
    def has_certificate(self) -> bool:
        """Whether the peer has shown a certificate that our authority has signed."""
        return bool(self.names or self.units)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: a certificate with its private key, and the certificates of authorities.

    Without `ca`, a server accepts clients without certificates, and a client trusts the system's
    authorities.
    """

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    def server_context(self, *, require_certificates: bool) -> ssl.SSLContext:
        """Make the context of a listener; a `ca` verifies the certificates that clients show."""
        if self.certificate is None:
            raise ValueError("a server with TLS needs a certificate")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context)
        if self.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED if require_certificates else ssl.CERT_OPTIONAL
        return context

    def client_context(self, *, check_host: bool) -> ssl.SSLContext:
        """Make the context of a dialer, which always verifies the server's certificate.

        Without `check_host` the certificate need not name the host: the caller checks another name.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = check_host
        if self.ca is None:
            context.load_default_certs()
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        if self.certificate is not None:
            _check_readable(self.certificate)
            if self.key is not None:
                _check_readable(self.key)
            try:
                # A callback keeps OpenSSL from asking for a pass phrase on the terminal.
                context.load_cert_chain(self.certificate, self.key, password=lambda: "")
            except (OSError, ValueError) as error:
                raise TlsError(
                    str(self.certificate), f"cannot be used with its key ({_reason(error)})"
                ) from error
        if self.ca is not None:
            _check_readable(self.ca)
            try:
                context.load_verify_locations(self.ca)
            except (OSError, ValueError) as error:
                raise TlsError(
                    str(self.ca), f"has no certificates of authorities ({_reason(error)})"
                ) from error


def read_proof(address: str, ssl_object: ssl.SSLObject | None) -> Proof:
    """Read what a connection proves, after the TLS handshake if there was one."""
    if ssl_object is None:
        return Proof(address)
    certificate: Mapping[str, Any] = ssl_object.getpeercert() or {}
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    alternatives = certificate.get("subjectAltName", ())
    names = {value for kind, value in alternatives if kind in _NAMES}
    names |= {value for key, value in subject if key == "commonName"}
    units = {value for key, value in subject if key == "organizationalUnitName"}
    return Proof(address, True, frozenset(names), frozenset(units))


def _check_readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise TlsError(
            str(path), f"cannot be read ({(error.strerror or str(error)).lower()})"
        ) from error


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).replace("_", " ").lower()
