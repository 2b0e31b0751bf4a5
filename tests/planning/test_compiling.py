"""Nothing is compiled while a clock runs: a first run on a machine plans as any other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit

from distributary.compiled import inner_kernel

COMPILED_ON_THE_CLOCK = """
import sys
import numpy as np
from distributary.cost import FilteringPrices
from distributary.model import Constraints, Demand, Limits
from distributary.planning import Request, UnicastLimits, plan
from distributary.planning.solve import _compile_for
from distributary.workloads import TwoClass, two_class

workload = two_class(TwoClass(receivers=60, flows=80), np.random.default_rng(0))
demand = Demand.of(*workload)


def compiled():
    return {
        (module, name): len(kernel.signatures)
        for module, source in sorted(sys.modules.items())
        if module.startswith("distributary.planning._")
        for name, kernel in sorted(vars(source).items())
        if hasattr(kernel, "signatures")
    }


def added(algorithm, **more):
    _compile_for(Request(2, algorithm=algorithm, **more))
    before = compiled()
    assert any(before.values())
    for groups, budget_s in ((5, 0.05), (48, 0.001)):
        plan(demand, Request(groups, 60, algorithm=algorithm, budget_s=budget_s, **more))
    return [key for key, number in compiled().items() if number != before[key]]


assert not any(compiled().values())
print(
    added("best"),
    added("best", prices=FilteringPrices(1, 2)),
    added("best", constraints=Constraints(Limits(group_rate=0.3 * demand.load.sum()))),
    added("best", max_sent=1.5, unicast=UnicastLimits()),
    added("optimal"),
    added("optimal-shared"),
)
"""


def test_no_kernel_is_compiled_after_the_clock_has_started() -> None:
    command = [sys.executable, "-c", COMPILED_ON_THE_CLOCK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[] [] [] [] [] []", "")


@inner_kernel
def _half(number: float, sign: int) -> float:
    return sign * number / 2


@njit
def _call_half_in_many_ways(small: Any, wide: Any) -> Any:
    return _half(small, 1), _half(wide, sign=-1), _half(7, small), _half(-7, sign=wide)


def test_all_integers_and_constants_share_one_version_of_an_inner_kernel() -> None:
    halves = _call_half_in_many_ways(np.int32(-3), np.int64(2**40 + 1))
    assert halves == (-1.5, -(2**39) - 0.5, -10.5, -7 * (2**39 + 0.5))
    signatures: Any = _half
    assert len(signatures.signatures) == 1


def test_python_cannot_call_an_inner_kernel() -> None:
    with pytest.raises(TypeError, match="only a kernel may call _half"):
        _half(1, 1)


@pytest.mark.slow
def test_a_machine_that_must_compile_first_finds_the_same_plan(tmp_path: Path) -> None:
    def run(*words: str, **environment: str) -> None:
        command = [sys.executable, "-m", "distributary", *words]
        subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, **environment})

    run("generate", "two-class", "--flows", "40", "--receivers", "40", "--out", "w")
    files = ("--interest", "w/interest.parquet", "--rates", "w/rates.parquet")
    # Far less than the clock allows, and far more than compiling would leave of it.
    plan = ("plan", *files, "--groups", "5", "--sessions", "8", "--budget", "0.5s")
    run(*plan, "--out", "warm")
    run(*plan, "--out", "cold", NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    warm, cold = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("warm", "cold")
    )
    assert warm == cold
