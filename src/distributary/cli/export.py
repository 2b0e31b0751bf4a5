"""`distributary export`: a plan as configuration for the middleware that carries it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from distributary import __version__
from distributary.cli.console import notes, print_json, results
from distributary.cli.options import INPUT, NETWORK, OUTPUT, TABLE, Json, reject_bad_values
from distributary.errors import PlanError
from distributary.files import StoredPlan, fingerprint, read_interest, read_plan
from distributary.files.replacing import replace_folder
from distributary.model import Interest, Plan, plan_problems

if TYPE_CHECKING:
    from distributary.export import Network

__all__ = ["export"]

MANIFEST = "export.json"


def export(
    plan: Annotated[Path, typer.Argument(help="A plan folder.")],
    format_name: Annotated[
        Literal["csv", "cyclonedds", "nats", "aeron"],
        typer.Option("--format", help="What it is for.", rich_help_panel=OUTPUT),
    ],
    out: Annotated[
        Path,
        typer.Option(help="The folder to write, or an export to replace.", rich_help_panel=OUTPUT),
    ],
    interest: Annotated[
        Path | None,
        typer.Option(
            "--interest",
            help=f"Check first that the plan serves it. {TABLE}.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            help="The first multicast address, IPv4 or IPv6, as `publish --group-base` takes it; "
            "239.192.77.0 without it.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="The UDP port of all groups; 7702 without it.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs", help="Two lines, A and B, for each group.", rich_help_panel=NETWORK
        ),
    ] = False,
    interface: Annotated[
        list[str] | None,
        typer.Option(
            help="Aeron: the interface, such as 10.1.0.0/16; for pairs first A's, then B's.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    guard: Annotated[
        bool,
        typer.Option(
            "--guard-spreadsheets",
            help="Put ' before names in CSV files that a spreadsheet would run as a formula.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    as_document: Json = False,
) -> None:
    """Turn a plan into configuration: tables, Cyclone DDS, NATS or Aeron.

    With --interest, fails (exit 1) if the plan does not serve it, and writes nothing then.
    """
    from distributary.export import FORMATS, export_files, guard_spreadsheets

    network = _network(format_name, base, port, pairs, interface)
    wanted = None if interest is None else read_interest(interest).value
    stored = read_plan(plan, wanted)
    problems = () if wanted is None else plan_problems(stored.plan, wanted)
    if problems:
        raise PlanError(problems, path=str(plan))
    files = export_files(stored.plan, format_name, network)
    if guard:
        if not any(name.endswith(".csv") for name in files):
            raise typer.BadParameter(
                f"--guard-spreadsheets: there is no CSV for {FORMATS[format_name].label}"
            )
        files = guard_spreadsheets(files)
    manifest = _manifest(stored.plan, format_name, network, sorted(files))
    manifest["guarded_spreadsheets"] = guard
    if format_name == "csv":
        manifest["control_group"] = network.control
    _write(files, manifest, out)
    if as_document:
        print_json(manifest)
        return
    _tell_doubts(stored, wanted, format_name)
    results.print(
        f"{len(stored.plan.flows) - stored.plan.unicast_flows:,} flows in "
        f"{stored.plan.n_sessions:,} sessions over {stored.plan.n_groups:,} groups, "
        f"for {FORMATS[format_name].label}: {', '.join(sorted(files))} in {out}",
        markup=False,
    )


def _network(
    format_name: str,
    base: str | None,
    port: int | None,
    pairs: bool,
    interface: list[str] | None,
) -> Network:
    """Make the network options; refuse what is wrong or what the format would ignore."""
    from distributary.export import FORMATS, Network

    asked: dict[str, Any] = {
        "base": base, "port": port, "pairs": pairs or None, "interfaces": tuple(interface or ()),
    }  # fmt: skip
    given = {name: value for name, value in asked.items() if value not in (None, ())}
    for name in given:
        if name not in FORMATS[format_name].settings:
            option = "--interface" if name == "interfaces" else f"--{name}"
            raise typer.BadParameter(f"{option} means nothing to {FORMATS[format_name].label}")
    with reject_bad_values():
        return Network(**given)


def _manifest(plan: Plan, format_name: str, network: Network, names: list[str]) -> dict[str, Any]:
    """What was exported and how: enough to do it again, and nothing of the moment."""
    from distributary.export import FORMATS

    settings = FORMATS[format_name].settings
    return {
        "distributary": __version__,
        "format": format_name,
        "flows": len(plan.flows),
        "duplicated_flows": plan.duplicated_flows,
        "receivers": len(plan.receivers),
        "sessions": plan.n_sessions,
        "groups": plan.n_groups,
        "network": {name: getattr(network, name) for name in sorted(settings)},
        "files": names,
    }


def _write(files: dict[str, bytes], manifest: dict[str, Any], out: Path) -> None:
    with replace_folder(out, lambda folder: (folder / MANIFEST).is_file(), "export") as new:
        for name, content in files.items():
            (new / name).write_bytes(content)
        (new / MANIFEST).write_bytes((json.dumps(manifest, indent=2) + "\n").encode())


def _tell_doubts(stored: StoredPlan, interest: Interest | None, format_name: str) -> None:
    from distributary.export.formats import MANY_MAPPINGS

    inputs = stored.metadata.get("inputs")
    made_from = inputs.get("interest") if isinstance(inputs, dict) else None
    if interest is not None and made_from != fingerprint(interest):
        notes.print("the plan was made from another interest than this, which it serves too")
    if stored.plan.unicast_flows:
        notes.print(
            f"{stored.plan.unicast_flows:,} of the flows go by unicast: they are left to the sender"
        )
    if format_name == "nats" and len(stored.plan.placement_flow) > MANY_MAPPINGS:
        notes.print(
            f"nats-server searches mappings one by one: for more than {MANY_MAPPINGS:,} use "
            "accounts.conf"
        )
