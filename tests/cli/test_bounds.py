"""What `plan` says about the optimum."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tests.cli.conftest import CommandLine


def write_tables(cli: CommandLine, flows: int, receivers: int, each: int) -> tuple[str, ...]:
    rng = np.random.default_rng(3)
    pairs = [(j, k) for k in range(flows) for j in rng.choice(receivers, each, replace=False)]
    cli.write("i.csv", "receiver,flow\n" + "".join(f"r{j},f{k}\n" for j, k in pairs))
    cli.write("r.csv", "flow,rate\n" + "".join(f"f{k},{1 + k % 7}\n" for k in range(flows)))
    return ("--interest", "i.csv", "--rates", "r.csv", "--out", "p", "--budget", "1s")


def test_a_small_plan_is_proven_optimal(cli: CommandLine) -> None:
    words = write_tables(cli, 6, 6, 3)
    ran = cli("plan", *words, "--groups", "2", "--sessions", "3")
    assert "optimal: no plan that meets the request has a lower filtering cost" in ran.out
    written = json.loads((cli.folder / "p" / "plan.json").read_text())
    assert written["bound"]["gap"] == 0
    assert written["bound"]["how"] == "optimum"
    assert written["bound"]["cost"] == pytest.approx(written["costs"]["filtering"]["work"])


def test_a_larger_plan_says_how_far_above_the_optimum_it_is_at_most(cli: CommandLine) -> None:
    words = (*write_tables(cli, 60, 30, 4), "--groups", "20")
    document = cli("plan", *words, "--json").document
    gap = document["bound"]["gap"]
    assert 0 < gap < 1
    work = document["filtering"]["work"]
    assert document["bound"]["cost"] * (1 + gap) == pytest.approx(work)
    share = math.ceil(gap * 1000) / 10
    assert (
        f"the filtering cost is at most {share:.1f} % above the optimum" in cli("plan", *words).out
    )
    assert json.loads((cli.folder / "p" / "plan.json").read_text())["bound"] == document["bound"]


def test_a_plan_without_a_useful_bound_is_the_best_known(cli: CommandLine) -> None:
    words = (*write_tables(cli, 300, 200, 3), "--groups", "3")
    assert "best known; no useful bound of the optimum" in cli("plan", *words).out


def test_copies_are_compared_with_what_is_wanted(cli: CommandLine) -> None:
    words = (*write_tables(cli, 6, 6, 3), "--groups", "2", "--max-sent", "2")
    document = cli("plan", *words, "--json").document
    assert document["bound"]["how"] == "wanted"
    assert document["bound"]["cost"] == document["filtering"]["wanted_work"]


def test_an_exact_solver_speaks_for_itself_about_its_own_cost(cli: CommandLine) -> None:
    words = (*write_tables(cli, 6, 6, 3), "--groups", "2", "--algorithm", "optimal")
    out = cli("plan", *words, "--objective", "channel").out
    assert "proven: no plan of this kind has a lower channel cost" in out
    assert "above the optimum" not in out
