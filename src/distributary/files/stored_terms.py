"""What `plan.json` says about the costs that a plan was made for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributary.cost import ChannelPrices, FilteringPrices, PacketPrices, Prices
from distributary.errors import InputError
from distributary.files.faults import input_fault, show_value
from distributary.files.plans import MANIFEST, read_manifest
from distributary.files.versions import follow_pointer
from distributary.model import UNITS, FloatArray, Interest, Packing, Unit, weigh_receivers

__all__ = ["StoredTerms", "read_stored_terms"]

_PACKET_PRICES = ("alpha0", "alpha1", "beta0", "beta1", "heartbeats")


@dataclass(frozen=True, slots=True)
class StoredTerms:
    """The prices that a plan was made with, and what they count.

    Each is checked when it is used. What an older or a foreign `plan.json` does not say has its
    default.
    """

    path: Path
    parameters: Mapping[str, Any]

    @property
    def prices(self) -> Prices:
        """The prices of messages, or of messages and packets."""
        own = self.parameters.get("packet_prices")
        try:
            if own is None:
                return FilteringPrices(self._number("alpha", 1.0), self._number("beta", 1.0))
            inner = StoredTerms(self.path, self._object("packet_prices"))
            fill = self.packing or Packing()
            return PacketPrices(
                **{name: inner._number(name) for name in _PACKET_PRICES},
                messages_per_packet=fill.messages_per_packet,
                delay_s=fill.delay_s,
            )
        except ValueError as error:
            raise self._fault(str(error), own) from None

    @property
    def channel_prices(self) -> ChannelPrices:
        """The prices of what is received and sent."""
        try:
            return ChannelPrices(
                self._number("received_price", 1.0), self._number("sent_price", 1.0)
            )
        except ValueError as error:
            remedy = "give --received-price and --sent-price, or plan again"
            raise self._fault(str(error), None, remedy) from None

    @property
    def packing(self) -> Packing | None:
        """How the sender is to fill its packets; None if the plan does not say."""
        if not {"messages_per_packet", "delay_s"} & set(self.parameters):
            return None
        usual = Packing()
        remedy = "give --messages-per-packet and --delay, or plan again"
        try:
            return Packing(
                self._number("messages_per_packet", usual.messages_per_packet, remedy),
                self._number("delay_s", usual.delay_s, remedy),
            )
        except ValueError as error:
            raise self._fault(str(error), None, remedy) from None

    @property
    def count(self) -> Unit:
        """What the rates of the plan count."""
        given = self.parameters.get("count", "messages")
        for unit in UNITS:
            if given == unit:
                return unit
        reason = f"count is {show_value(given)}, not one of {', '.join(UNITS)}"
        raise self._fault(reason, given, "give --count, or plan again")

    @property
    def receiver_weights(self) -> dict[str, float]:
        """How much each receiver counts, by name; 1 where it is not named."""
        inner = StoredTerms(self.path, self._object("receiver_weights"))
        weights = {name: inner._number(name, None, "plan again") for name in inner.parameters}
        for name, weight in weights.items():
            if not 0 < weight < float("inf"):
                reason = f"the weight of {show_value(name)} is {weight}, not a number above 0"
                raise self._fault(reason, weight, "plan again")
        return weights

    def weigh(self, interest: Interest) -> FloatArray | None:
        """How much each receiver counts; None if all count the same."""
        return weigh_receivers(interest, self.receiver_weights)

    def _object(self, name: str) -> Mapping[str, Any]:
        value = self.parameters.get(name, {})
        if not isinstance(value, dict):
            raise self._fault(f"{name} is {show_value(value)}, not an object", value, "plan again")
        return value

    def _number(self, name: str, default: float | None = None, remedy: str = "") -> float:
        value = self.parameters.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._fault(f"{name} is {show_value(value)}, not a number", value, remedy)
        return value

    def _fault(self, reason: str, value: object, remedy: str = "") -> InputError:
        remedy = remedy or "give --alpha and --beta, or plan again"
        return input_fault(self.path, reason, value=value, remedy=remedy)


def read_stored_terms(folder: str | os.PathLike[str]) -> StoredTerms:
    """Read from a plan folder what its plan was made for."""
    folder = follow_pointer(Path(folder))
    parameters = read_manifest(folder).get("parameters")
    return StoredTerms(folder / MANIFEST, parameters if isinstance(parameters, dict) else {})
