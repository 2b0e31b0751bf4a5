"""Configuration for NATS servers: publish to a flow's subject, subscribe to a session's.

Flow IBM in session 17 of group 3 is published to `flow.IBM` and arrives on `g3.s17.IBM`;
subscribers of the session listen to `g3.s17.*`. Names are escaped, so each is one token. A server
maps a subject to exactly one other and never copies, so a flow in several sessions is published
once for each: to `flow.IBM`, `flow.IBM.2` and so on, as `flows.csv` lists.

There are two files with the same mapping; use one of them. `mappings.conf` needs no accounts, but
the server searches its mappings linearly for each message: nats-server 2.15 forwarded about 40,000
messages per second with 1,000 flows and 2,000 with 20,000. `accounts.conf` uses stream imports,
which are looked up in a tree: 150,000 per second with 20,000 flows. There, publishers log in as
`flows` and receivers as `plan`, with passwords from the server's environment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from distributary.errors import InputError
from distributary.export.names import escape_name
from distributary.export.tables import (
    csv_bytes,
    dictionary_column,
    placement_columns,
    subscription_columns,
)
from distributary.model import Plan

__all__ = ["MANY_MAPPINGS", "nats_files"]

MANY_MAPPINGS = 1_000
# A server's `max_control_line` is 4,096 bytes, which must also hold a reply subject.
LONGEST_SUBJECT = 3_800


def nats_files(plan: Plan) -> dict[str, bytes]:
    """`mappings.conf`, `accounts.conf`, and the subjects to publish and to subscribe to."""
    tokens = [escape_name(flow) for flow in plan.flows]
    published = _published_subjects(plan, tokens)
    arriving = _arriving_subjects(plan, tokens)
    _check_lengths(plan, published, arriving)
    rows = np.arange(len(published))
    heard = [f"g{group}.s{session}.*" for session, group in enumerate(plan.session_group.tolist())]
    return {
        "mappings.conf": _mappings(published, arriving).encode("ascii"),
        "accounts.conf": _accounts(published, arriving).encode("ascii"),
        "flows.csv": csv_bytes(
            {
                **placement_columns(plan),
                "subject": dictionary_column(published, rows),
                "session_subject": dictionary_column(arriving, rows),
            }
        ),
        "subscriptions.csv": csv_bytes(
            {
                **subscription_columns(plan),
                "subject": dictionary_column(heard, plan.subscription_session),
            }
        ),
    }


def _published_subjects(plan: Plan, tokens: Sequence[str]) -> list[str]:
    """The subject of each placement; further copies of a flow are numbered from 2."""
    _, first = np.unique(plan.placement_flow, return_index=True)
    start = np.repeat(first, np.diff(first, append=len(plan.placement_flow)))
    copies = (np.arange(len(start)) - start + 1).tolist()
    return [
        f"flow.{tokens[flow]}" + (f".{copy}" if copy > 1 else "")
        for flow, copy in zip(plan.placement_flow.tolist(), copies, strict=True)
    ]


def _arriving_subjects(plan: Plan, tokens: Sequence[str]) -> list[str]:
    groups = plan.session_group.tolist()
    return [
        f"g{groups[session]}.s{session}.{tokens[flow]}"
        for flow, session in zip(
            plan.placement_flow.tolist(), plan.placement_session.tolist(), strict=True
        )
    ]


def _check_lengths(plan: Plan, published: Sequence[str], arriving: Sequence[str]) -> None:
    for flow, *subjects in zip(plan.placement_flow.tolist(), published, arriving, strict=True):
        longest = max(map(len, subjects))
        if longest > LONGEST_SUBJECT:
            name = plan.flows[flow]
            raise InputError(
                f"flow {name[:20]!r}… makes a NATS subject of {longest:,} characters; the limit is "
                f"{LONGEST_SUBJECT:,}",
                value=name,
                remedy="give the flow a shorter name",
            )


def _mappings(published: Sequence[str], arriving: Sequence[str]) -> str:
    rows = "".join(
        f"  {json.dumps(source)}: {json.dumps(to)}\n"
        for source, to in zip(published, arriving, strict=True)
    )
    return (
        "# Each flow's subject mapped to its session's: `include` this in a server's\n"
        "# configuration, at the top level or in an account. Servers search mappings one by one:\n"
        f"# with more than {MANY_MAPPINGS:,} of them, accounts.conf does the same faster.\n"
        f"mappings {{\n{rows}}}\n"
    )


def _accounts(published: Sequence[str], arriving: Sequence[str]) -> str:
    rows = "".join(
        f"      {{stream: {{account: FLOWS, subject: {json.dumps(source)}}}, "
        f"to: {json.dumps(to)}}}\n"
        for source, to in zip(published, arriving, strict=True)
    )
    return (
        "# Each flow's subject imported as its session's: `include` this in a server's\n"
        "# configuration. Passwords are taken from the server's environment.\n"
        "accounts {\n"
        "  FLOWS {\n"
        "    users: [{user: flows, password: $FLOWS_PASSWORD}]\n"
        '    exports: [{stream: "flow.>"}]\n'
        "  }\n"
        "  PLAN {\n"
        "    users: [{user: plan, password: $PLAN_PASSWORD}]\n"
        f"    imports: [\n{rows}    ]\n"
        "  }\n"
        "}\n"
    )
