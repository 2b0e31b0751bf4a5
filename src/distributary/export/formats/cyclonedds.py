"""Configuration for Eclipse Cyclone DDS: groups as network partitions, flows as topics.

A flow is a topic, named by its escaped name. A session is a DCPS partition, `s17`: it is written
through a publisher in that partition and read through a subscriber in it, one per session, since
Cyclone takes an endpoint's network partition from the first of its partitions that is mapped. A
group is a network partition with its multicast address. A flow in several sessions is mapped in
each. Ports follow from the domain id, as DDS prescribes.

The file holds nothing else, so it can be combined with a site's own:
`CYCLONEDDS_URI=file:///etc/site.xml,file:///etc/cyclonedds.xml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from xml.sax.saxutils import quoteattr

from distributary.export.names import escape_name
from distributary.export.network import Network
from distributary.export.tables import (
    csv_bytes,
    dictionary_column,
    placement_columns,
    subscription_columns,
)
from distributary.model import Plan

__all__ = ["cyclonedds_files"]


def cyclonedds_files(plan: Plan, network: Network) -> dict[str, bytes]:
    """`cyclonedds.xml`, one per line, and tables of what is written and read in which partition."""
    topics = [escape_name(flow) for flow in plan.flows]
    partitions = [f"s{session}" for session in range(plan.n_sessions)]
    addresses = network.assign(plan.n_groups)
    files = {}
    for line in network.lines:
        name = f"cyclonedds-{line}.xml" if network.pairs else "cyclonedds.xml"
        on_line = [a.address for a in addresses if a.line == line]
        files[name] = _configuration(plan, topics, on_line).encode("ascii")
    return files | {
        "flows.csv": csv_bytes(
            {
                **placement_columns(plan),
                "partition": dictionary_column(partitions, plan.placement_session),
                "topic": dictionary_column(topics, plan.placement_flow),
            }
        ),
        "subscriptions.csv": csv_bytes(
            {
                **subscription_columns(plan),
                "partition": dictionary_column(partitions, plan.subscription_session),
            }
        ),
    }


def _configuration(plan: Plan, topics: Sequence[str], addresses: Sequence[str]) -> str:
    transport = "udp" if ip_address(addresses[0]).version == 4 else "udp6"
    partitions = "".join(
        f"        <NetworkPartition Name={quoteattr(f'g{group}')} Address={quoteattr(address)}/>\n"
        for group, address in enumerate(addresses)
    )
    mappings = "".join(
        f"        <PartitionMapping NetworkPartition={quoteattr(f'g{group}')} "
        f"DCPSPartitionTopic={quoteattr(f's{session}.{topics[flow]}')}/>\n"
        for flow, session, group in zip(
            plan.placement_flow.tolist(),
            plan.placement_session.tolist(),
            plan.session_group[plan.placement_session].tolist(),
            strict=True,
        )
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<CycloneDDS xmlns="https://cdds.io/config">\n'
        '  <Domain Id="any">\n'
        f"    <General>\n      <Transport>{transport}</Transport>\n    </General>\n"
        "    <Partitioning>\n"
        f"      <NetworkPartitions>\n{partitions}      </NetworkPartitions>\n"
        f"      <PartitionMappings>\n{mappings}      </PartitionMappings>\n"
        "    </Partitioning>\n"
        "  </Domain>\n"
        "</CycloneDDS>\n"
    )
