"""Who may connect to a broker: see `machines.real.trust`."""

from __future__ import annotations

from distributary.machines.real.trust import EVERYBODY, Trust, check_certificate

__all__ = ["BROKER_UNIT", "EVERYBODY", "ROLES", "Trust", "check_certificate"]

ROLES = ("broker", "client")
BROKER_UNIT = "broker"  # the organizational unit in certificates of brokers
