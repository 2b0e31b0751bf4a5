"""Read interest and rates, and account for every row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from distributary.cli.console import notes
from distributary.files import BadTablesError, Intake, ReadDemand, read_demand, write_quarantine

__all__ = ["intake_document", "print_intake", "read_inputs"]


def read_inputs(
    interest: Path,
    rates: Path,
    max_bad: float,
    floor: float | None,
    quarantine: Path | None,
    *,
    on_peak: bool = False,
) -> ReadDemand:
    """Read interest and rates; write bad rows to the quarantine, even if they are too many."""
    try:
        inputs = read_demand(interest, rates, on_peak=on_peak, max_bad=float(max_bad), floor=floor)
    except BadTablesError as error:
        if quarantine is not None:
            write_quarantine(error.bad, quarantine)
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--floor'") from None
    if quarantine is not None:
        write_quarantine(inputs.bad, quarantine)
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
