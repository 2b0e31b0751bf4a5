"""The interest matrix as a picture: flows from left to right, receivers from top to bottom.

Millions of cells become one small PNG with a palette. Its background is transparent, so it works on
light and dark pages. A single wanted pair stays visible however many cells share its pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO

import numpy as np
import numpy.typing as npt

from distributary.model import FloatArray, IntArray, Interest, Plan
from distributary.report.palette import FLOW_DROPPED, MISSED, SESSION_DROPPED, WANTED

__all__ = ["HEIGHT", "WIDTH", "PlanPicture", "picture_by_name", "picture_by_plan"]

WIDTH, HEIGHT = 1400, 360
_WANTED_LEVELS, _GROUND_LEVELS = 7, 4
_SWEEPS = 12


@dataclass(frozen=True, slots=True)
class PlanPicture:
    """The PNG, and the groups from left to right with their numbers of flows; -1 is no group."""

    png: bytes
    groups: tuple[tuple[int, int], ...]


def picture_by_name(interest: Interest) -> bytes:
    """Draw the matrix in the order of names."""
    grid = _Grid(np.arange(len(interest.receivers)), np.arange(len(interest.flows)))
    wanted = grid.shares(interest.flow_receivers, interest.pair_flows())
    usual_peak = float(np.quantile(wanted[wanted > 0], 0.995))
    return _encode_png(_wanted_level(wanted, full=usual_peak, least=4) * (_GROUND_LEVELS + 1) ** 2)


def picture_by_plan(plan: Plan, interest: Interest, served: npt.NDArray[np.bool_]) -> PlanPicture:
    """Draw the matrix in the order of the plan, with what the plan wastes.

    Flows are ordered by group and session, receivers by the groups they join. The background shows
    what arrives without being wanted: what each receiver's groups and sessions carry. A flow in
    several sessions is drawn in the first. `served` says which wanted pairs are delivered.
    """
    flow_session, flow_group = _first_placement(plan)
    joins = plan.group_joins()
    group_rank, receiver_rank = _rank_by_members(*joins, plan.n_groups, len(plan.receivers))
    # Flows in no session (-1) go last.
    group_key = np.where(flow_group < 0, plan.n_groups, group_rank[flow_group])
    column = _ranks(np.lexsort((flow_session, group_key)))
    grid = _Grid(receiver_rank, column)
    pair_flow, pair_receiver = interest.pair_flows(), interest.flow_receivers
    received = grid.ground(*joins, flow_group, plan.n_groups)
    accepted = grid.ground(
        plan.subscription_receiver, plan.subscription_session, flow_session, plan.n_sessions
    )
    # Here the wanted share is drawn over the background, so it is not scaled to its peak, and a
    # single pair among hundreds of cells must not hide what the others waste.
    crowded = len(plan.receivers) * len(plan.flows) > 40 * HEIGHT * WIDTH
    wanted = grid.shares(pair_receiver, pair_flow)
    index = _wanted_level(wanted, full=1.0, least=1 if crowded else 5)
    index = index * (_GROUND_LEVELS + 1) + _ground_level(accepted)
    index = index * (_GROUND_LEVELS + 1) + _ground_level(received - accepted)
    missed = grid.shares(pair_receiver[~served], pair_flow[~served]) > 0
    index[missed] = len(_PALETTE) - 1
    sizes = np.bincount(group_key, minlength=plan.n_groups + 1)
    order = [*np.argsort(group_rank).tolist(), -1]
    return PlanPicture(
        png=_encode_png(index),
        groups=tuple(
            (group, int(flows)) for group, flows in zip(order, sizes, strict=True) if flows
        ),
    )


class _Grid:
    """Receivers and flows, each at its rank, binned into at most HEIGHT x WIDTH cells."""

    def __init__(self, receiver_rank: IntArray, flow_rank: IntArray) -> None:
        self.rows = min(len(receiver_rank), HEIGHT)
        self.columns = min(len(flow_rank), WIDTH)
        self.row = receiver_rank * self.rows // len(receiver_rank)
        self.column = flow_rank * self.columns // len(flow_rank)
        self.row_size = np.bincount(self.row, minlength=self.rows)
        self.column_size = np.bincount(self.column, minlength=self.columns)

    def shares(
        self, receiver: npt.NDArray[np.integer], flow: npt.NDArray[np.integer]
    ) -> FloatArray:
        """The share of each cell's pairs that is among these; shape (rows, columns)."""
        cell = self.row[receiver] * self.columns + self.column[flow]
        counts = np.bincount(cell, minlength=self.rows * self.columns)
        return self._over_size(counts.reshape(self.rows, self.columns))

    def ground(
        self,
        receiver: npt.NDArray[np.integer],
        channel: npt.NDArray[np.integer],
        flow_channel: npt.NDArray[np.integer],
        n_channels: int,
    ) -> FloatArray:
        """The share of each cell's pairs that these channels connect; shape (rows, columns).

        A channel is a group or a session. `receiver[i]` is on `channel[i]`; `flow_channel` is the
        channel of each flow, or -1.
        """
        placed = flow_channel >= 0
        listeners = np.bincount(
            self.row[receiver] * n_channels + channel, minlength=self.rows * n_channels
        ).reshape(self.rows, n_channels)
        carried = np.bincount(
            flow_channel[placed] * np.int64(self.columns) + self.column[placed],
            minlength=n_channels * self.columns,
        ).reshape(n_channels, self.columns)
        # Small integers are exact in float32, which is fastest.
        return self._over_size(listeners.astype(np.float32) @ carried.astype(np.float32))

    def _over_size(self, counts: npt.NDArray[np.integer | np.floating]) -> FloatArray:
        shares: FloatArray = counts / np.outer(self.row_size, self.column_size)
        return shares


def _first_placement(plan: Plan) -> tuple[IntArray, IntArray]:
    """The first session and its group of each flow, or -1."""
    session = np.full(len(plan.flows), -1, np.int64)
    flows, first = np.unique(plan.placement_flow, return_index=True)
    session[flows] = plan.placement_session[first]
    return session, np.where(session < 0, -1, plan.session_group[session])


def _rank_by_members(
    receiver: npt.NDArray[np.integer],
    group: npt.NDArray[np.integer],
    n_groups: int,
    n_receivers: int,
) -> tuple[IntArray, IntArray]:
    """Rank groups and receivers so that groups with common members are neighbours.

    The barycentre heuristic: place each group at the mean rank of its members, then each receiver
    at the mean rank of its groups, and repeat.
    """
    group_rank, receiver_rank = np.arange(n_groups), np.arange(n_receivers)
    for _ in range(_SWEEPS):
        group_rank = _ranks(
            np.argsort(_means(group, receiver_rank[receiver], n_groups), kind="stable")
        )
        receiver_rank = _ranks(
            np.argsort(_means(receiver, group_rank[group], n_receivers), kind="stable")
        )
    return group_rank, receiver_rank


def _means(index: npt.NDArray[np.integer], values: IntArray, n: int) -> FloatArray:
    means: FloatArray = np.bincount(index, weights=values, minlength=n) / np.maximum(
        np.bincount(index, minlength=n), 1
    )
    return means


def _ranks(order: IntArray) -> IntArray:
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _wanted_level(shares: FloatArray, *, full: float, least: int) -> IntArray:
    """The level of each share: 0 for none, then from `least` up to the top at `full`."""
    levels = np.ceil(_WANTED_LEVELS * np.sqrt(np.minimum(shares / full, 1)))
    seen: IntArray = np.where(shares > 0, np.maximum(levels, least), 0).astype(np.int64)
    return seen


def _ground_level(shares: FloatArray) -> IntArray:
    return np.rint(_GROUND_LEVELS * np.clip(shares, 0, 1)).astype(np.int64)


def _encode_png(index: IntArray) -> bytes:
    """Encode the palette indices of cells as a PNG, scaled up to the full size."""
    from PIL import Image

    rows, columns = index.shape
    cells = index.astype(np.uint8)[np.arange(HEIGHT) * rows // HEIGHT]
    cells = cells[:, np.arange(WIDTH) * columns // WIDTH]
    image = Image.frombytes("P", (WIDTH, HEIGHT), cells.tobytes())
    image.putpalette(bytes(channel for colour in _PALETTE for channel in colour), "RGBA")
    file = BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _make_palette() -> list[tuple[int, int, int, int]]:
    """The colours of wanted over accepted over received, at all levels; the last is missed."""
    entries = []
    for wanted in range(_WANTED_LEVELS + 1):
        for accepted in range(_GROUND_LEVELS + 1):
            for received in range(_GROUND_LEVELS + 1):
                layers = (
                    (SESSION_DROPPED, 0.32 * received / _GROUND_LEVELS),
                    (FLOW_DROPPED, 0.55 * accepted / _GROUND_LEVELS),
                    (WANTED, 0.25 + 0.75 * wanted / _WANTED_LEVELS if wanted else 0.0),
                )
                entries.append(_compose(layers))
    return [*entries, _compose(((MISSED, 1.0),))]


def _compose(layers: tuple[tuple[str, float], ...]) -> tuple[int, int, int, int]:
    """Blend layers from the bottom up into 8-bit RGBA."""
    colour, alpha = np.zeros(3), 0.0
    for layer, opacity in layers:
        rgb = np.array([int(layer[at : at + 2], 16) for at in (1, 3, 5)], np.float64)
        above = opacity + alpha * (1 - opacity)
        if above > 0:
            colour = (rgb * opacity + colour * alpha * (1 - opacity)) / above
        alpha = above
    red, green, blue = (round(float(channel)) for channel in colour)
    return red, green, blue, round(255 * alpha)


_PALETTE = _make_palette()
