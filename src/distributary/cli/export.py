"""`distributary export`: a plan as configuration for other middleware."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from distributary import __version__
from distributary.cli.console import notes, print_json, results
from distributary.cli.option_groups import takes_groups
from distributary.cli.options import INPUT, NETWORK, OUTPUT, TABLE, Json, option, reject_bad_values
from distributary.errors import PlanError
from distributary.files import StoredPlan, fingerprint, read_interest, read_plan
from distributary.files.replacing import replace_folder
from distributary.model import Interest, Plan, plan_problems

if TYPE_CHECKING:
    from distributary.export import Network

__all__ = ["export"]

MANIFEST = "export.json"
FormatName = Literal["csv", "cyclonedds", "nats", "aeron"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressOptions:
    """Where groups are."""

    base: Annotated[
        str | None,
        option(
            "First multicast address, IPv4 or IPv6; the same as --group-base of `publish`.",
            NETWORK,
            show_default="239.192.77.0",
        ),
    ] = None
    port: Annotated[
        int | None,
        option("UDP port of all groups.", NETWORK, min=1, max=65535, show_default="7702"),
    ] = None
    pairs: Annotated[bool, option("Give each group two lines, A and B.", NETWORK, "--pairs")] = (
        False
    )
    interface: Annotated[
        list[str] | None,
        option(
            "Aeron only: interface, such as 10.1.0.0/16; with --pairs give A's, then B's.", NETWORK
        ),
    ] = None

    def make_network(self, format_name: str) -> Network:
        """Make the network settings; reject options that the format would ignore."""
        from distributary.export import FORMATS, Network

        asked: dict[str, Any] = {
            "base": self.base,
            "port": self.port,
            "pairs": self.pairs or None,
            "interfaces": tuple(self.interface or ()),
        }
        given = {name: value for name, value in asked.items() if value not in (None, ())}
        for name in given:
            if name not in FORMATS[format_name].settings:
                option = "--interface" if name == "interfaces" else f"--{name}"
                raise typer.BadParameter(f"{option} does not apply to {FORMATS[format_name].label}")
        with reject_bad_values():
            return Network(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOutput:
    """What is written, and where."""

    format_name: Annotated[
        FormatName, option("Software to export for; csv is for your own.", OUTPUT, "--format")
    ]
    out: Annotated[Path, option("Folder to write; an earlier export in it is replaced.", OUTPUT)]
    guard: Annotated[
        bool,
        option(
            "In CSV files, put ' before cells that a spreadsheet would run as a formula.",
            OUTPUT,
            "--guard-spreadsheets",
        ),
    ] = False
    as_document: Json = False


@takes_groups
def export(
    plan: Annotated[Path, typer.Argument(help="Plan folder.")],
    output: ExportOutput,
    addresses: AddressOptions,
    interest: Annotated[
        Path | None,
        option(
            f"Table with columns receiver, flow: check that the plan serves it. {TABLE}.",
            INPUT,
            "--interest",
        ),
    ] = None,
) -> None:
    """Export a plan as configuration: CSV tables, Cyclone DDS, NATS or Aeron.

    With --interest, the command writes nothing and exits with 1 if the plan does not serve it.
    """
    from distributary.export import FORMATS

    format_name, out = output.format_name, output.out
    network = addresses.make_network(format_name)
    wanted = None if interest is None else read_interest(interest).value
    stored = read_plan(plan, wanted)
    problems = () if wanted is None else plan_problems(stored.plan, wanted)
    if problems:
        raise PlanError(problems, path=str(plan))
    files = _make_files(stored.plan, network, format_name, guard=output.guard)
    manifest = _manifest(stored.plan, format_name, network, sorted(files))
    manifest["guarded_spreadsheets"] = output.guard
    if format_name == "csv":
        manifest["control_group"] = network.control
    _write_files(files, manifest, out)
    if output.as_document:
        print_json(manifest)
        return
    _print_warnings(stored, wanted, format_name)
    results.print(
        f"{len(stored.plan.flows) - stored.plan.unicast_flows:,} flows in "
        f"{stored.plan.n_sessions:,} sessions over {stored.plan.n_groups:,} groups, "
        f"for {FORMATS[format_name].label}: {', '.join(sorted(files))} in {out}",
        markup=False,
    )


def _make_files(
    plan: Plan, network: Network, format_name: FormatName, *, guard: bool
) -> dict[str, bytes]:
    from distributary.export import FORMATS, export_files, guard_spreadsheets

    files = export_files(plan, format_name, network)
    if not guard:
        return files
    if not any(name.endswith(".csv") for name in files):
        raise typer.BadParameter(
            f"--guard-spreadsheets: {FORMATS[format_name].label} has no CSV files"
        )
    return guard_spreadsheets(files)


def _manifest(plan: Plan, format_name: str, network: Network, names: list[str]) -> dict[str, Any]:
    """Describe what was exported and how: enough to repeat it, without a timestamp."""
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


def _write_files(files: dict[str, bytes], manifest: dict[str, Any], out: Path) -> None:
    with replace_folder(out, lambda folder: (folder / MANIFEST).is_file(), "export") as new:
        for name, content in files.items():
            (new / name).write_bytes(content)
        (new / MANIFEST).write_bytes((json.dumps(manifest, indent=2) + "\n").encode())


def _print_warnings(stored: StoredPlan, interest: Interest | None, format_name: str) -> None:
    from distributary.export.formats import MANY_MAPPINGS

    inputs = stored.metadata.get("inputs")
    made_from = inputs.get("interest") if isinstance(inputs, dict) else None
    if interest is not None and made_from != fingerprint(interest):
        notes.print("the plan was made from another interest table, but serves this one too")
    if stored.plan.unicast_flows:
        notes.print(
            f"{stored.plan.unicast_flows:,} flows go by unicast; the sender has to send them itself"
        )
    if format_name == "nats" and len(stored.plan.placement_flow) > MANY_MAPPINGS:
        notes.print(
            f"nats-server searches mappings one by one: with more than {MANY_MAPPINGS:,}, use "
            "accounts.conf"
        )
