"""Options for prices: of messages, of packets, of what is sent and received."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from distributary.cli.options import PRICES, filtering_prices, option, reject_bad_values
from distributary.cli.quantities import Delay
from distributary.cost import ChannelPrices, FilteringPrices, PacketPrices, Prices
from distributary.files import StoredTerms, read_prices
from distributary.model import Packing

__all__ = ["ChannelOptions", "OwnPrices", "PacketOptions", "delay_option"]

MOST_MESSAGES = 65_535
RECEIVED_HELP = "Channel cost of one message received (Adler's w1)."
SENT_HELP = "Channel cost of one message sent, counting each copy (Adler's w2)."
STORED = "that of plan.json"


def delay_option(help: str, panel: str, shown: str) -> typer.models.OptionInfo:
    """Declare an option for a time that may be 0."""
    return option(help, panel, parser=Delay, metavar="TIME", show_default=shown)


@dataclass(frozen=True, kw_only=True)
class PacketOptions:
    """What packets cost, and how the sender fills them."""

    calibration: Annotated[
        Path | None,
        option(
            "File written by `calibrate`: price each session by its own messages and packets, "
            "instead of --alpha and --beta.",
            PRICES,
        ),
    ] = None
    messages_per_packet: Annotated[
        int | None,
        option(
            "Maximum messages per packet (h), for the prices of packets and for `publish`.",
            PRICES,
            min=1,
            max=MOST_MESSAGES,
            show_default="8",
        ),
    ] = None
    delay: Annotated[
        Delay | None,
        delay_option(
            "How long a message may wait for others to fill its packet, for the prices of packets "
            "and for `publish`.",
            PRICES,
            "1ms",
        ),
    ] = None

    @property
    def packing(self) -> Packing | None:
        """How the sender fills its packets; None if neither option is given."""
        return _fill(Packing(), self.messages_per_packet, self.delay)

    def choose(self, linear: FilteringPrices) -> Prices:
        """Return the prices of the calibration file, if one is given, or else the linear ones."""
        if self.calibration is None:
            return linear
        if linear != FilteringPrices():
            raise typer.BadParameter(
                "--calibration replaces --alpha and --beta: give one or the other"
            )
        return read_prices(self.calibration, self.packing)


@dataclass(frozen=True, kw_only=True)
class ChannelOptions:
    """The prices of the channel cost."""

    received_price: Annotated[float, option(RECEIVED_HELP, PRICES)] = 1.0
    sent_price: Annotated[float, option(SENT_HELP, PRICES)] = 1.0

    def make_prices(self) -> ChannelPrices:
        """Make the prices; invalid ones are wrong usage."""
        return _channel_prices(self.received_price, self.sent_price)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPrices:
    """The prices to evaluate a plan at: its own, unless others are given."""

    alpha: Annotated[
        float | None,
        option("Cost of one message at the session filter.", PRICES, show_default=STORED),
    ] = None
    beta: Annotated[
        float | None,
        option("Cost of one message at the flow filter.", PRICES, show_default=STORED),
    ] = None
    calibration: Annotated[
        Path | None,
        option(
            "File written by `calibrate`: price each session by its own messages and packets.",
            PRICES,
            show_default=STORED,
        ),
    ] = None
    messages_per_packet: Annotated[
        int | None,
        option(
            "Maximum messages per packet (h), for the prices of packets.",
            PRICES,
            min=1,
            max=MOST_MESSAGES,
            show_default=STORED,
        ),
    ] = None
    delay: Annotated[
        Delay | None,
        delay_option(
            "How long a message may wait for others, for the prices of packets.", PRICES, STORED
        ),
    ] = None
    received_price: Annotated[float | None, option(RECEIVED_HELP, PRICES, show_default=STORED)] = (
        None
    )
    sent_price: Annotated[float | None, option(SENT_HELP, PRICES, show_default=STORED)] = None

    def choose(self, stored: StoredTerms) -> Prices:
        """Return the prices given; what is not given is as the plan was made with."""
        linear = self.alpha is not None or self.beta is not None
        if linear and self.calibration is not None:
            raise typer.BadParameter(
                "--calibration replaces --alpha and --beta: give one or the other"
            )
        if linear:
            return filtering_prices(
                stored.prices.alpha if self.alpha is None else self.alpha,
                stored.prices.beta if self.beta is None else self.beta,
            )
        packing = _fill(stored.packing or Packing(), self.messages_per_packet, self.delay)
        if self.calibration is not None:
            return read_prices(self.calibration, packing or stored.packing)
        own = stored.prices
        if packing is None or not isinstance(own, PacketPrices):
            return own
        return replace(
            own, messages_per_packet=packing.messages_per_packet, delay_s=packing.delay_s
        )

    def choose_packing(self, stored: StoredTerms) -> Packing | None:
        """Return how packets are filled; what is not given is as the plan was made for."""
        own = stored.packing
        return _fill(own or Packing(), self.messages_per_packet, self.delay) or own

    def choose_channel(self, stored: StoredTerms) -> ChannelPrices:
        """Return the channel prices given; one that is not given is the plan's own."""
        own = stored.channel_prices
        return _channel_prices(
            own.received if self.received_price is None else self.received_price,
            own.sent if self.sent_price is None else self.sent_price,
        )


def _fill(usual: Packing, messages: int | None, delay: Delay | None) -> Packing | None:
    """Change what is given of a packing; None if nothing is."""
    if messages is None and delay is None:
        return None
    return Packing(
        usual.messages_per_packet if messages is None else messages,
        usual.delay_s if delay is None else float(delay),
    )


def _channel_prices(received: float, sent: float) -> ChannelPrices:
    with reject_bad_values("'--received-price' / '--sent-price'"):
        return ChannelPrices(received, sent)
