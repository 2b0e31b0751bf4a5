from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from distributary.model import Demand, Interest
from distributary.report.deliveries import plan_deliveries
from distributary.report.picture import HEIGHT, WIDTH, picture_by_name, picture_by_plan
from tests.report import cases


def pixels(png: bytes) -> np.ndarray:
    """(HEIGHT, WIDTH, 4) RGBA."""
    with Image.open(BytesIO(png)) as image:
        assert image.format == "PNG"
        assert image.size == (WIDTH, HEIGHT)
        return np.asarray(image.convert("RGBA"))


def sparse(receivers: int, flows: int) -> Demand:
    """Each receiver wants one flow and each flow is wanted, nothing else."""
    n = max(receivers, flows)
    interest = Interest.from_codes(
        [f"r{i:06d}" for i in range(receivers)],
        [f"f{i:06d}" for i in range(flows)],
        (np.arange(n) % receivers).astype(np.int32),
        (np.arange(n) % flows).astype(np.int32),
    )
    return Demand(interest, np.ones(flows))


def test_small_matrix_is_blown_up_cell_by_cell() -> None:
    report = cases.small()
    seen = pixels(picture_by_name(report.demand.interest))[:, :, 3] > 0
    cells = seen[HEIGHT // 8 :: HEIGHT // 4, WIDTH // 10 :: WIDTH // 5]
    expected = ["11100", "01100", "00011", "00001"]
    assert cells.astype(int).tolist() == [[int(cell) for cell in row] for row in expected]


def test_single_pair_fills_the_picture() -> None:
    assert (pixels(picture_by_name(cases.single().demand.interest))[:, :, 3] == 255).all()


@pytest.mark.parametrize(("receivers", "flows"), [(900, 30_000), (3, 30_000), (2_000, 2)])
def test_lone_pairs_stay_visible_in_a_large_matrix(receivers: int, flows: int) -> None:
    demand = sparse(receivers, flows)
    alpha = pixels(picture_by_name(demand.interest))[:, :, 3]
    assert alpha[alpha > 0].min() >= 128
    assert (alpha.max(axis=0) > 0).all()
    assert (alpha.max(axis=1) > 0).all()


@pytest.mark.parametrize(
    "case", [cases.small, cases.single, cases.duplicated, cases.invalid, cases.silent]
)
def test_plan_picture_is_a_png_and_lists_each_flow_once(case) -> None:  # type: ignore[no-untyped-def]
    report = case()
    served = plan_deliveries(report.plan, report.demand).pair_served
    picture = picture_by_plan(report.plan, report.demand.interest, served)
    pixels(picture.png)
    assert sum(flows for _, flows in picture.groups) == len(report.plan.flows)


def test_plan_picture_tints_what_arrives_unwanted() -> None:
    demand = cases.demand_of({"anna": "A", "ben": "B"})
    plan = cases.plan_of(demand, [(0, 0), (1, 1)], [0, 0])
    seen = pixels(picture_by_plan(plan, demand.interest, np.ones(2, np.bool_)).png)
    alphas = sorted(int(seen[y, x, 3]) for y in (90, 270) for x in (350, 1050))
    # Two wanted cells, opaque; two that arrive and are dropped, faint but there.
    assert alphas[2:] == [255, 255]
    assert 0 < alphas[0] == alphas[1] < 128


def test_missed_pairs_stand_out() -> None:
    report = cases.invalid()
    served = plan_deliveries(report.plan, report.demand).pair_served
    seen = pixels(picture_by_plan(report.plan, report.demand.interest, served).png)
    red, blue = seen[:, :, 0].astype(int), seen[:, :, 2].astype(int)
    # Of the six cells of two receivers and three flows, ben's two.
    assert ((red > 2 * blue) & (seen[:, :, 3] == 255)).mean() == pytest.approx(2 / 6, abs=0.01)
