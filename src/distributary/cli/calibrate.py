"""`distributary calibrate`: what the two filters cost on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.progress import Progress as Bars
from rich.table import Table

from distributary.cli.console import notes, print_json, results
from distributary.cli.multicast_options import GroupBase, InterfaceName, Port, make_groups
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import (
    NETWORK,
    OUTPUT,
    Json,
    duration_option,
    option,
    reject_bad_values,
)
from distributary.cli.quantities import Seconds

if TYPE_CHECKING:
    from distributary.delivery.udp.calibration import Calibration, CalibrationParams

__all__ = ["calibrate"]

MEASURING = "Measuring"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringOptions:
    """What to measure, and how often."""

    factor: Annotated[
        list[int] | None,
        option(
            "Messages per packet (h) to measure with; repeatable.",
            MEASURING,
            "--messages-per-packet",
            min=1,
        ),
    ] = None
    message_bytes: Annotated[int, option("Payload of a message, in bytes.", MEASURING, min=1)] = 200
    seconds: Annotated[
        Seconds, duration_option("How long to send in each measurement.", MEASURING)
    ] = Seconds("500ms")
    rounds: Annotated[
        int, option("How many times to repeat all measurements.", MEASURING, min=1)
    ] = 3
    unicast: Annotated[
        bool, option("Send by unicast instead of multicast.", NETWORK, "--unicast")
    ] = False

    def make_params(self) -> CalibrationParams:
        """Make the settings of the measurement."""
        from distributary.delivery.udp.calibration import FACTORS, CalibrationParams

        with reject_bad_values():
            return CalibrationParams(
                factors=tuple(sorted(set(self.factor))) if self.factor else FACTORS,
                message_bytes=self.message_bytes,
                seconds=float(self.seconds),
                unicast=self.unicast,
                rounds=self.rounds,
            )


@takes_groups
def calibrate(
    out: Annotated[Path, option("File to write, for `plan --calibration`.", OUTPUT)],
    measuring: MeasuringOptions,
    group_base: GroupBase = "239.192.77.0",
    port: Port = 7703,
    interface: InterfaceName = "lo",
    as_document: Json = False,
) -> None:
    """Measure what a message costs a receiver at each of the two filters, for `plan`.

    The prices depend on h, the number of messages in a packet: alpha(h) for the session filter,
    beta(h) for the flow filter.
    """
    from distributary.delivery.udp import NetworkOptions
    from distributary.delivery.udp.calibration import calibrate as measure_prices
    from distributary.delivery.udp.calibration_file import calibration_document, write_calibration

    params = measuring.make_params()
    # With a ttl of 0 nothing leaves this machine.
    network = NetworkOptions(make_groups(group_base, port), interface, ttl=0)
    with Bars(console=notes, transient=True, disable=not notes.is_terminal) as bars:
        task = bars.add_task("calibrating")
        calibration = measure_prices(
            network,
            params,
            progress=lambda done, total: bars.update(task, completed=done, total=total),
        )
    write_calibration(calibration, out)
    if calibration.doubtful:
        notes.print(
            "the measurements are noisy: calibrate again while the machine is idle, or with more "
            "--rounds"
        )
    if as_document:
        print_json(calibration_document(calibration))
        return
    results.print(_table(calibration))
    results.print(_sentence(calibration), markup=False)
    results.print(f"written to {out}", markup=False)


def _table(calibration: Calibration) -> Table:
    table = Table("h", "alpha, ns a message", "fit", "beta, ns a message", "fit", box=None)
    for price in calibration.prices:
        numbers = (
            price.alpha,
            calibration.alpha.at(price.h),
            price.beta,
            calibration.beta.at(price.h),
        )
        table.add_row(str(price.h), *(f"{1e9 * number:,.1f}" for number in numbers))
    return table


def _sentence(calibration: Calibration) -> str:
    alpha, beta = calibration.alpha, calibration.beta
    return (
        f"alpha(h) = {1e9 * alpha.constant:,.1f} + {1e9 * alpha.per_packet:,.1f}/h ns "
        f"(R2 {alpha.r2:.3f}), beta(h) = {1e9 * beta.constant:,.1f} + "
        f"{1e9 * beta.per_packet:,.1f}/h ns (R2 {beta.r2:.3f})"
    )
