"""Real sockets in a network namespace: everything wanted is delivered, once and in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.delivery.udp.namespace import Worker, working


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    yield from working()


@pytest.mark.parametrize("plain", [False, True], ids=["mmsg", "plain"])
def test_several_receivers_get_all_they_want(worker: Worker, plain: bool) -> None:
    worker.run("several_receivers", plain)


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_what_is_lost_at_the_endpoint_is_repaired(worker: Worker, share: float) -> None:
    worker.run("loss_at_the_endpoint", share)


def test_what_the_kernel_loses_is_repaired(worker: Worker) -> None:
    worker.run("loss_by_netem")


@pytest.mark.parametrize("share", [0.0, 0.05])
@pytest.mark.parametrize("by_name", [False, True], ids=["with a plan", "without a plan"])
def test_a_new_plan_in_the_folder_loses_and_doubles_nothing(
    worker: Worker, share: float, by_name: bool
) -> None:
    worker.run("plan_change_in_the_folder", share, by_name)


def test_a_plan_change_under_traffic_loses_and_doubles_nothing(worker: Worker) -> None:
    worker.run("plan_change_without_a_pause")


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_flows_go_by_unicast_where_the_plan_says_so(worker: Worker, share: float) -> None:
    worker.run("unicast_flows", share)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_it_works_over_ipv6(worker: Worker, share: float) -> None:
    worker.run("ipv6", share)


def test_more_groups_than_a_socket_can_join(worker: Worker) -> None:
    worker.run("many_groups")


def test_packets_without_the_key_change_nothing(worker: Worker) -> None:
    worker.run("strangers")


@pytest.mark.parametrize("everywhere", [False, True], ids=["port", "everywhere"])
@pytest.mark.parametrize("base", ["239.192.77.0", "ff15::7700:0"])
def test_made_up_packets_end_nothing(worker: Worker, base: str, everywhere: bool) -> None:
    worker.run("forgeries", base, everywhere)


def test_a_publisher_whose_clock_stepped_back_is_followed(worker: Worker) -> None:
    worker.run("a_clock_that_stepped_back")


def test_a_slow_reader_stops_nobody(worker: Worker) -> None:
    worker.run("a_slow_reader_stops_nobody")


def test_a_sender_that_starts_again_is_followed(worker: Worker) -> None:
    worker.run("a_sender_that_starts_again")


def test_a_late_receiver_can_have_what_came_before(worker: Worker) -> None:
    worker.run("a_late_receiver_with_history")


def test_iterating_opens_and_closes_a_receiver(worker: Worker) -> None:
    worker.run("iterating_opens_and_closes")


def test_an_interface_that_cannot_be_used_is_an_error_that_says_so(worker: Worker) -> None:
    worker.run("a_publisher_that_cannot_send")


def test_statistics_are_served_to_prometheus(worker: Worker) -> None:
    worker.run("metrics")


@pytest.mark.parametrize(
    ("interface", "network"),
    [
        ("lo", ()),
        ("lo", ("--group-base", "239.255.7.9", "--port", "7710")),
        ("veth0", ("--group-base", "ff15::7700:0")),
    ],
    ids=["default", "ipv4", "ipv6"],
)
def test_a_plan_is_published_at_the_addresses_it_is_exported_at(
    worker: Worker, tmp_path: Path, interface: str, network: tuple[str, ...]
) -> None:
    worker.run("publishing_at_exported_addresses", str(tmp_path), interface, *network)


def test_commands_deliver_and_end_with_ctrl_c(worker: Worker, tmp_path: Path) -> None:
    worker.run("commands_deliver_and_end_with_ctrl_c", str(tmp_path))


def test_a_receiver_needs_nothing_but_its_name_and_the_base_address(
    worker: Worker, tmp_path: Path
) -> None:
    worker.run("a_receiver_with_nothing_but_its_name", str(tmp_path))


def test_killed_processes_in_two_namespaces_lose_nothing_of_others(
    worker: Worker, tmp_path: Path
) -> None:
    worker.run("processes_that_are_killed", str(tmp_path))


def test_ctrl_c_ends_a_publisher_that_waits_for_input(worker: Worker, tmp_path: Path) -> None:
    worker.run("ctrl_c_ends_a_publisher", str(tmp_path))


def test_a_receiver_goes_on_while_nobody_reads_what_it_prints(
    worker: Worker, tmp_path: Path
) -> None:
    worker.run("a_stdout_that_nobody_reads", str(tmp_path))


def test_a_receiver_that_pauses_gives_nothing_up(worker: Worker) -> None:
    worker.run("a_receiver_that_pauses")


def test_a_wanted_flow_that_no_plan_has_is_reported_at_once(worker: Worker, tmp_path: Path) -> None:
    worker.run("a_flow_that_no_plan_has", str(tmp_path))


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_stale_copy_of_the_plan_is_reported_at_once(
    worker: Worker, tmp_path: Path, in_folder: bool
) -> None:
    worker.run("a_stale_copy_of_the_plan", str(tmp_path), in_folder)


@pytest.mark.parametrize("way", ["plan", "table", "sender"])
def test_a_running_receiver_follows_a_new_plans_interest(
    worker: Worker, tmp_path: Path, way: str
) -> None:
    worker.run("interest_that_changes_with_the_plan", str(tmp_path), way)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_interest_changes_while_a_receiver_runs(worker: Worker, share: float) -> None:
    worker.run("interest_that_changes_while_running", share)


def test_nothing_of_a_flow_comes_after_it_was_left(worker: Worker) -> None:
    worker.run("a_flow_that_is_left_while_somebody_reads")


def test_a_table_of_interest_is_watched(worker: Worker, tmp_path: Path) -> None:
    worker.run("a_table_of_interest_that_changes", str(tmp_path))


def test_lines_on_stdin_change_what_a_command_receives(worker: Worker, tmp_path: Path) -> None:
    worker.run("lines_that_change_interest", str(tmp_path))


def test_events_reach_exactly_those_whose_filters_match(worker: Worker, tmp_path: Path) -> None:
    worker.run("events_by_content", str(tmp_path))


@pytest.mark.parametrize("seed", range(4))
def test_a_new_run_of_the_pipeline_takes_over_while_events_flow(
    worker: Worker, tmp_path: Path, seed: int
) -> None:
    worker.run("content_that_changes", str(tmp_path), seed)


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_publishing_unknown_flows_says_how_many_of_which_were_dropped_and_fails(
    worker: Worker, tmp_path: Path, more: tuple[str, ...]
) -> None:
    worker.run("publishing_unknown_flows", str(tmp_path), *more)


@pytest.mark.parametrize("more", [(), pytest.param(("--unicast",), marks=pytest.mark.slow)])
def test_calibrating_writes_prices_that_can_be_read(
    worker: Worker, tmp_path: Path, more: tuple[str, ...]
) -> None:
    worker.run("calibrating", str(tmp_path), *more)
