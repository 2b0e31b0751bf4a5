"""Read interest and rates, and account for every row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from distributary.cli.console import notes
from distributary.cli.options import INPUT, TABLE, option, share_option
from distributary.cli.quantities import Share
from distributary.files import BadTablesError, Intake, ReadDemand, read_demand, write_quarantine
from distributary.model import Unit

__all__ = ["DemandFiles", "intake_document", "print_intake"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandFiles:
    """The options that name the tables of interest and rates, and say what to do with bad rows."""

    interest: Annotated[
        Path, option(f"Table of who wants which flow, with columns receiver, flow. {TABLE}.", INPUT)
    ]
    rates: Annotated[
        Path, option(f"Table of rates in messages/s, with columns flow, rate. {TABLE}.", INPUT)
    ]
    max_bad: Annotated[
        Share,
        share_option("Leave out bad rows, up to this share of each table, such as 1%.", INPUT),
    ] = Share("0%")
    floor: Annotated[
        float | None,
        option(
            "Messages/s for wanted flows that have no rate; without it they are an error.", INPUT
        ),
    ] = None
    quarantine: Annotated[
        Path | None, option("Write all bad rows to this table, with file, row and reason.", INPUT)
    ] = None

    count: Annotated[
        Unit | None,
        option(
            "What rates, costs and caps count: messages, or bytes by the size column of the rates.",
            INPUT,
            show_default="messages, or what plan.json says",
        ),
    ] = None

    def read(self, *, on_peak: bool = False, usual_count: Unit = "messages") -> ReadDemand:
        """Read both tables; write bad rows to the quarantine, even if they are too many."""
        try:
            inputs = read_demand(
                self.interest,
                self.rates,
                on_peak=on_peak,
                max_bad=float(self.max_bad),
                floor=self.floor,
                count=self.count or usual_count,
            )
        except BadTablesError as error:
            if self.quarantine is not None:
                write_quarantine(error.bad, self.quarantine)
            raise
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="'--floor'") from None
        if self.quarantine is not None:
            write_quarantine(inputs.bad, self.quarantine)
        return inputs


def print_intake(inputs: ReadDemand) -> None:
    """Print how many rows were used, repeated, quarantined or left out."""
    for name, intake in _tables(inputs).items():
        if intake.bad:
            notes.print(
                f"{name}: {intake.rows:,} rows = {intake.used:,} used + {intake.duplicates:,} "
                f"duplicates + {len(intake.bad):,} quarantined"
            )
            for reason, number in intake.reasons.items():
                notes.print(f"  {number:,} x {reason}", markup=False)
        elif intake.duplicates:
            notes.print(
                f"{name}: {intake.duplicates:,} of {intake.rows:,} rows are duplicates, used once"
            )
    if inputs.floored:
        notes.print(f"rates: {inputs.floored:,} wanted flows without a rate get the one of --floor")
    if inputs.unwanted_flows:
        notes.print(f"rates: {inputs.unwanted_flows:,} flows that nobody wants are left out")


def intake_document(inputs: ReadDemand) -> dict[str, Any]:
    """The counts of `print_intake`, for JSON output."""
    document: dict[str, Any] = {
        name: {
            "rows": intake.rows,
            "used": intake.used,
            "duplicates": intake.duplicates,
            "quarantined": len(intake.bad),
            "reasons": intake.reasons,
        }
        for name, intake in _tables(inputs).items()
    }
    document["rates"]["floored"] = inputs.floored
    return document


def _tables(inputs: ReadDemand) -> dict[str, Intake[Any]]:
    return {"interest": inputs.interest, "rates": inputs.rates}
