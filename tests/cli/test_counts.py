"""Messages and bytes, weights and prices of what is sent and received, on the command line."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import CommandLine, Ran
from tests.cli.test_bad_input import assert_one_line

QUICK = ("--budget", "0.05s")


@pytest.fixture
def sized(cli: CommandLine) -> tuple[str, ...]:
    """A small demand whose messages have sizes: d is slow and large."""
    cli.write("interest.csv", "receiver,flow\nann,a\nann,b\nbob,b\nbob,c\ncyd,c\ncyd,d\n")
    cli.write("rates.csv", "flow,rate,size\na,8,100\nb,4,100\nc,2,100\nd,1,10000\n")
    return ("--interest", "interest.csv", "--rates", "rates.csv")


def plan_to(cli: CommandLine, inputs: tuple[str, ...], *more: str) -> Ran:
    ran = cli("plan", *inputs, "--groups", "2", *QUICK, "--out", "plan", "--json", *more)
    assert ran.status == 0, ran
    return ran


def test_bytes_are_counted_instead_of_messages_where_asked(
    cli: CommandLine, sized: tuple[str, ...]
) -> None:
    messages = plan_to(cli, sized, "--algorithm", "by-name").document
    in_bytes = plan_to(cli, sized, "--algorithm", "by-name", "--count", "bytes").document
    # by-name: a and b in one group, c and d in the other. Bob joins both.
    assert messages["channel"]["received"] == 12 + (12 + 3) + 3
    assert in_bytes["channel"]["received"] == 1200 + (1200 + 10200) + 10200
    assert (messages["count"], in_bytes["count"]) == ("messages", "bytes")
    for document in (messages, in_bytes):
        assert document["rates"]["messages"]["received"] == 30
        assert document["rates"]["bytes"]["received"] == 22_800
    parameters = json.loads((cli.folder / "plan/plan.json").read_text())["parameters"]
    assert parameters["count"] == "bytes"


def test_evaluate_counts_as_the_plan_does_and_shows_both(
    cli: CommandLine, sized: tuple[str, ...]
) -> None:
    planned = plan_to(cli, sized, "--algorithm", "by-name", "--count", "bytes").document
    evaluated = cli("evaluate", "plan", *sized, "--json").document
    assert evaluated["channel"] == planned["channel"]
    assert [row["rate"] for row in evaluated["per_group"]] == [12, 3]
    assert [row["byte_rate"] for row in evaluated["per_group"]] == [1200, 10_200]
    assert [row["received_bytes"] for row in evaluated["per_receiver"]] == [1200, 11_400, 10_200]
    other = cli("evaluate", "plan", *sized, "--count", "messages", "--json").document
    assert other["channel"]["received"] == 30
    shown = cli("evaluate", "plan", *sized).out
    assert "messages/s" in shown
    assert "bytes/s" in shown
    assert "cost, counting bytes" in shown


def test_a_report_has_messages_and_bytes(cli: CommandLine, sized: tuple[str, ...]) -> None:
    plan_to(cli, sized, "--count", "bytes")
    assert cli("report", "plan", *sized, "--no-compare").status == 0
    page = (cli.folder / "report.html").read_text(encoding="utf-8")
    assert "received, bytes/s" in page
    assert "received, messages/s" in page
    assert "every byte costs α = 1" in page


def test_bytes_need_sizes(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    ran = cli("plan", *inputs, "--groups", "2", "--count", "bytes", "--out", "plan")
    assert_one_line(ran, "rates.csv", "no column 'size'")


def test_caps_are_in_bits_or_bytes_where_bytes_count(
    cli: CommandLine, sized: tuple[str, ...]
) -> None:
    asked = ("--groups", "3", *QUICK, "--out", "plan", "--json", "--count", "bytes")
    for cap in ("81.6kbit", "10.2KB", "10200", "10.2kB/s"):
        ran = cli("plan", *sized, *asked, "--group-cap", cap)
        assert ran.status == 0, ran
        stored = json.loads((cli.folder / "plan/plan.json").read_text())["parameters"]
        assert stored["constraints"]["group_rate"] == pytest.approx(10_200)
    too_low = cli("plan", *sized, *asked, "--group-cap", "1KB")
    assert too_low.status == 1, too_low


@pytest.mark.parametrize("cap", ["fast", "10Mb", "-3", "5 parsecs", "1e400"])
def test_what_is_no_rate_is_refused(cli: CommandLine, sized: tuple[str, ...], cap: str) -> None:
    ran = cli("plan", *sized, "--groups", "2", "--out", "plan", f"--group-cap={cap}")
    assert ran.status == 2, ran
    assert cap in ran.err
    assert "800Mbit" in ran.err or "more than a rate" in ran.err


def test_bits_mean_nothing_where_messages_count(cli: CommandLine, sized: tuple[str, ...]) -> None:
    ran = cli("plan", *sized, "--groups", "2", "--out", "plan", "--group-cap", "8Mbit")
    assert ran.status == 2, ran
    assert "--count bytes" in ran.err


def test_prices_of_sent_and_received_are_stored_and_read_back(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    prices = ("--received-price", "2", "--sent-price", "5")
    planned = plan_to(cli, inputs, *prices, "--objective", "channel").document
    plain = plan_to(cli, inputs, "--objective", "channel").document
    assert planned["channel"]["received"] == 2 * plain["channel"]["received"]
    assert planned["channel"]["sent"] == 5 * plain["channel"]["sent"] == 50
    planned = plan_to(cli, inputs, *prices, "--objective", "channel").document
    evaluated = cli("evaluate", "plan", *inputs, "--json").document
    assert evaluated["channel"] == planned["channel"]
    assert evaluated["prices"]["sent_price"] == 5
    dearer = cli("evaluate", "plan", *inputs, "--sent-price", "50", "--json").document
    assert dearer["channel"]["sent"] == 500
    assert dearer["channel"]["received"] == planned["channel"]["received"]
    ran = cli("evaluate", "plan", *inputs, "--sent-price", "-1")
    assert ran.status == 2, ran
    assert "'--sent-price'" in ran.err


def test_copies_sent_do_not_depend_on_what_they_cost(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    plan_to(cli, inputs, "--sent-price", "5")
    line = next(row for row in cli("evaluate", "plan", *inputs).out.splitlines() if "copies" in row)
    assert line.split()[2] == "1.00"


def test_a_sweep_takes_the_same_prices(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    numbers = {"alpha0": 0.25, "alpha1": 2.0, "beta0": 3.0, "beta1": 8.0}
    cli.write("prices.json", json.dumps({"format": 1, **numbers}))
    asked = ("sweep", *inputs, "--groups", "1,2", *QUICK, "--json")
    by_packet = cli(*asked, "--calibration", "prices.json", "--delay", "0").document
    linear = cli(*asked, "--alpha", "2.25", "--beta", "11").document
    # Without a delay every message is a packet; heartbeats come on top.
    for one, other in zip(by_packet["points"], linear["points"], strict=True):
        assert one["work"] > other["work"]
        assert one["alpha"] == 0.5  # in a full packet
    both = cli(*asked, "--calibration", "prices.json", "--alpha", "1,2")
    assert both.status == 2, both
    priced = cli(*asked, "--received-price", "3", "--objective", "channel").document
    assert all(point["channel_cost"] > 30 for point in priced["points"])


def test_how_packets_are_filled_is_stored_and_taken_from_there(
    cli: CommandLine, inputs: tuple[str, ...]
) -> None:
    from distributary.cli.publish import SendingOptions
    from distributary.cli.quantities import Delay

    plan_to(cli, inputs, "--messages-per-packet", "16", "--delay", "2ms")
    parameters = json.loads((cli.folder / "plan/plan.json").read_text())["parameters"]
    assert (parameters["messages_per_packet"], parameters["delay_s"]) == (16, 0.002)
    folder = cli.folder / "plan"
    taken = SendingOptions().make_params(folder)
    assert (taken.messages_per_packet, taken.max_age) == (16, 0.002)
    told = SendingOptions(messages_per_packet=4).make_params(folder)
    assert (told.messages_per_packet, told.max_age) == (4, 0.002)
    at_once = SendingOptions(delay=Delay("0")).make_params(folder)
    assert (at_once.messages_per_packet, at_once.max_age) == (16, 0)
    plan_to(cli, inputs)
    usual = SendingOptions().make_params(folder)
    assert (usual.messages_per_packet, usual.max_age) == (8, 0.001)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"messages_per_packet": 0}, "--messages-per-packet"),
        ({"delay_s": "soon"}, "'soon'"),
    ],
)
def test_a_packing_that_is_none_is_one_line_of_error(
    cli: CommandLine, inputs: tuple[str, ...], parameters: dict[str, object], said: str
) -> None:
    plan_to(cli, inputs)
    path = cli.folder / "plan" / "plan.json"
    document = json.loads(path.read_text())
    document["parameters"] |= parameters
    path.write_text(json.dumps(document))
    ran = cli("publish", "--plan", "plan", "--from", "none.csv")
    assert_one_line(ran, "plan.json", said)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"count": "bits"}, "'bits'"),
        ({"received_price": -1}, "--received-price"),
        ({"receiver_weights": {"ann": 0}}, "'ann'"),
        ({"receiver_weights": 3}, "receiver_weights"),
        ({"packet_prices": {"alpha0": 1}}, "alpha1"),
        ({"packet_prices": "cheap"}, "'cheap'"),
    ],
)
def test_bad_terms_in_plan_json_are_one_line_of_error(
    cli: CommandLine, inputs: tuple[str, ...], parameters: dict[str, object], said: str
) -> None:
    plan_to(cli, inputs)
    path = cli.folder / "plan" / "plan.json"
    document = json.loads(path.read_text())
    document["parameters"] |= parameters
    path.write_text(json.dumps(document))
    assert_one_line(cli("evaluate", "plan", *inputs), "plan.json", said)


def test_weights_in_plan_json_count_in_evaluate(cli: CommandLine, inputs: tuple[str, ...]) -> None:
    plan_to(cli, inputs, "--algorithm", "by-name")
    plain = cli("evaluate", "plan", *inputs, "--json").document
    path = cli.folder / "plan" / "plan.json"
    document = json.loads(path.read_text())
    document["parameters"]["receiver_weights"] = {"ann": 3, "bob": 3, "cyd": 3}
    path.write_text(json.dumps(document))
    weighted = cli("evaluate", "plan", *inputs, "--json").document
    assert weighted["filtering"]["work"] == 3 * plain["filtering"]["work"]
    assert weighted["per_receiver"] == plain["per_receiver"]
