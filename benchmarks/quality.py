"""The papers' figures about the quality of the algorithms."""

from __future__ import annotations

import numpy as np

from benchmarks.instances import floor_demand, two_class_demand
from benchmarks.measure import Section
from distributary import FilteringPrices, Request, evaluate, plan

ALGORITHMS = ("SF", "GF", "IT", "RRA")
SESSIONS = (100, 200, 500, 1000)
# The results of an independent implementation on the same benchmark (3 seeds); the paper prints
# only a chart, from about 0.32 down to 0.14. It did not record 200 sessions.
FOUND = {
    100: (0.266, 0.268, 0.248, 0.254),
    500: (0.212, 0.188, 0.181, 0.180),
    1000: (0.193, 0.169, 0.163, 0.162),
}
# Adler's Fig. 2, section 5.2.1 (50 instances), and an independent implementation (1,000).
FIG2 = (
    ("FBM = OCC", "FBM", "OCC", 1.00, 58, 46),
    ("FBM within 5 %", "FBM", "OCC", 1.05, 92, 89),
    ("UBM = OCA", "UBM", "OCA", 1.00, 10, 13),
    ("UBM within 5 %", "UBM", "OCA", 1.05, 62, 45),
    ("OCC = OCA", "OCC", "OCA", 1.00, 36, 38),
    ("OCC within 5 %", "OCC", "OCA", 1.05, 84, 84),
)


def fig7() -> Section:
    """The relative excess of the four two-level algorithms."""
    demands = [floor_demand(seed) for seed in range(5)]
    rows = []
    for sessions in SESSIONS:
        means = []
        for algorithm in ALGORITHMS:
            excess = []
            for seed, demand in enumerate(demands):
                request = Request(groups=50, sessions=sessions, algorithm=algorithm, seed=seed)
                evaluation = evaluate(plan(demand, request).plan, demand, FilteringPrices())
                assert evaluation.valid
                excess.append(evaluation.filtering.relative_excess)
            means.append(float(np.mean(excess)))
        found = FOUND.get(sessions)
        rows.append(
            [str(sessions)]
            + [
                f"{mean:.4f}" + (f" ({found[i]:.3f}, {mean / found[i]:.2f})" if found else "")
                for i, mean in enumerate(means)
            ]
        )
    return Section(
        "Tock, Fig. 7: four algorithms at 50 groups",
        "Cx/Cf at alpha = beta = 1 on the trading floor (20,000 symbols, 500 receivers), mean of "
        "5 seeds. In brackets: the result of an independent implementation, and the ratio of "
        "ours to it. The paper's chart falls from about 0.32 to 0.14; with many sessions GF is "
        "below SF, and IT and RRA are best.",
        ["sessions", *ALGORITHMS],
        rows,
    )


def fig2(instances: int = 200) -> Section:
    """How often the heuristics find the optimum."""
    costs: dict[str, list[float]] = {name: [] for name in ("FBM", "UBM", "OCC", "OCA")}
    for seed in range(instances):
        demand = two_class_demand(seed, 9)
        for name, found in costs.items():
            solution = plan(demand, Request(groups=3, algorithm=name, seed=seed))
            evaluation = evaluate(solution.plan, demand)
            assert evaluation.valid
            assert name[0] != "O" or solution.proven
            found.append(evaluation.channel.cost)
    table = {name: np.array(found) for name, found in costs.items()}
    rows = []
    for claim, ours, best, slack, paper, found_by_others in FIG2:
        share = float(np.mean(table[ours] <= slack * table[best] + 1e-9))
        rows.append([claim, f"{share:.1%}", f"{paper} %", f"{found_by_others} %"])
    return Section(
        "Adler, Fig. 2: how often the optimum is found",
        f"{instances} instances of 9 flows x 9 receivers x 3 groups; OCC and OCA were proven "
        "optimal in each. The paper has 50 instances, the independent implementation 1,000.",
        ["claim", "ours", "paper", "independent"],
        rows,
        "Neither implementation confirms that UBM is within 5 % of OCA in 62 % of the cases.",
    )
