"""Fig. 4: who follows what on the trading floor, and how fast each symbol ticks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from distributary.model import FloatArray, IntArray, Interest, Rates
from distributary.papers.drawing import COLOURS, INK, Sheet, draw_chart
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.tock.floors import FLOOR, PRINTED, READING, draw_floor, vital_signs
from distributary.papers.wording import percent, table
from distributary.planning import Progress, Step, silent

__all__ = ["fig4"]

TOP = 0.1  # of a market's symbols
TOP_SHARE = 0.55  # of its trade: section 5.1
CLOSE = 0.05
INDEPENDENT_FOLLOWED = 7500  # about, of 20,000
COLUMNS_SHOWN = 1250  # of the picture; each stands for 16 symbols
POINTS_PER_MARKET = 80  # of the rate curve


def fig4(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """The interest matrix as a picture above the message rates; one floor, quick or not."""
    progress(Step("floors", 0, 1))
    interest, rates, _ = draw_floor(seed, 0)
    progress(Step("floors", 1, 1))
    first = _market_starts(rates)
    symbol = np.searchsorted(np.array(rates.flows), np.array(interest.flows))
    signs = vital_signs(interest, rates)
    return Figure(
        name="tock-fig4",
        title="Interest and message rates of a trading floor",
        source="Tock et al. (2005), Fig. 4 and section 5.1",
        shown=(
            f"One floor of {FLOOR.symbols:,} symbols in {FLOOR.markets} markets and "
            f"{FLOOR.receivers} users. The upper chart has a point for each symbol that a user "
            "follows, the lower one each symbol's message rate. Symbols are sorted by market "
            "and, within it, by rank."
        ),
        columns=("market", "symbols", "followed_symbols", "follows", "messages_per_s"),
        rows=_market_rows(interest, rates, symbol, first),
        chart=_chart(interest, rates, symbol, first),
        comparison=_comparison(signs, len(interest.flows)),
        claims=(*_symbol_claims(signs), _concentration_claim(rates, first)),
        notes=(
            READING,
            "Symbols that nobody follows are shown in the picture and left out of everything else.",
            "One floor is one draw: a number counts as reproduced if it is within "
            f"{percent(CLOSE)} of the paper's, or within one symbol. "
            "[tock-unicast-flooding](tock-unicast-flooding.md) has the spread over many floors.",
        ),
        own=(
            "Nothing is planned here. [tock-fig6](tock-fig6.md), [tock-fig7](tock-fig7.md) and "
            "[tock-outliers](tock-outliers.md) have what ours saves on floors drawn like this one."
        ),
        quick=quick,
        seed=seed,
    )


def _market_starts(rates: Rates) -> IntArray:
    """The first symbol of each market, and the end of the last; names start with the market."""
    market = np.array([name.partition("-")[0] for name in rates.flows])
    starts = np.flatnonzero(np.concatenate(([True], market[1:] != market[:-1])))
    return np.append(starts, len(market))


def _market_rows(
    interest: Interest, rates: Rates, symbol: IntArray, first: IntArray
) -> tuple[tuple[int | float, ...], ...]:
    edges = np.searchsorted(symbol, first)
    return tuple(
        (
            market + 1,
            int(first[market + 1] - first[market]),
            int(edges[market + 1] - edges[market]),
            int(interest.audience[edges[market] : edges[market + 1]].sum()),
            float(rates.rate[first[market] : first[market + 1]].sum()),
        )
        for market in range(len(first) - 1)
    )


def _comparison(signs: dict[str, float], followed: int) -> str:
    keys = ("symbols_mean", "symbols_max", "symbols_min")
    rows = [
        (
            PRINTED[key].says,
            PRINTED[key].format(signs[key]),
            PRINTED[key].format(PRINTED[key].value),
            PRINTED[key].independent,
        )
        for key in keys
    ]
    rows.append(
        (
            f"symbols that somebody follows, of {FLOOR.symbols:,}",
            f"{followed:,}",
            "not printed",
            f"about {INDEPENDENT_FOLLOWED:,}",
        )
    )
    return table(("number", "ours (1 floor)", "paper (1 floor)", "independent (40 floors)"), rows)


def _symbol_claims(signs: dict[str, float]) -> list[Claim]:
    return [
        Claim(
            f"{PRINTED[key].says}: {PRINTED[key].format(PRINTED[key].value)}",
            PRINTED[key].source,
            PRINTED[key].format(signs[key]),
            abs(signs[key] - PRINTED[key].value) <= max(1, CLOSE * PRINTED[key].value),
        )
        for key in ("symbols_mean", "symbols_max", "symbols_min")
    ]


def _concentration_claim(rates: Rates, first: IntArray) -> Claim:
    share = np.array(
        [
            rates.rate[start : start + round(TOP * (end - start))].sum()
            / rates.rate[start:end].sum()
            for start, end in pairwise(first)
        ]
    )
    return Claim(
        f"the busiest {percent(TOP)} of a market's symbols hold {percent(TOP_SHARE)} of its trade",
        "section 5.1",
        f"{percent(share.min(), 1)} to {percent(share.max(), 1)}",
        bool(np.abs(share - TOP_SHARE).max() <= 0.01),
    )


def _picture(interest: Interest, symbol: IntArray) -> npt.NDArray[np.uint8]:
    """Users x columns x RGB: coloured where the user follows one of the column's symbols."""
    picture = np.full((len(interest.receivers), COLUMNS_SHOWN, 3), 255, np.uint8)
    column = symbol * COLUMNS_SHOWN // FLOOR.symbols
    colour = tuple(bytes.fromhex(COLOURS["GF"].removeprefix("#")))
    picture[interest.flow_receivers, column[interest.pair_flows()]] = colour
    return picture


def _rate_curve(rates: Rates, first: IntArray) -> tuple[IntArray, FloatArray]:
    """Enough points for the eye, including the first and the last symbol of each market."""
    points = np.concatenate(
        [
            np.unique(np.linspace(start, end - 1, POINTS_PER_MARKET).astype(np.int64))
            for start, end in pairwise(first)
        ]
    )
    return points, rates.rate[points]


def _chart(interest: Interest, rates: Rates, symbol: IntArray, first: IntArray) -> str:
    def paint(sheet: Sheet) -> None:
        top, bottom = sheet.panels
        top.grid(visible=False)
        top.imshow(
            _picture(interest, symbol),
            aspect="auto",
            interpolation="none",
            extent=(0, FLOOR.symbols, FLOOR.receivers, 0),
        )
        top.set(ylabel="users")
        top.tick_params(labelbottom=False)
        for market, (start, end) in enumerate(pairwise(first), start=1):
            name = f"market {market}" if market == 1 else f"{market}"
            top.annotate(
                name,
                ((start + end) / 2, 1),
                (0, 4),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
            )
        bottom.plot(*_rate_curve(rates, first), color=INK, linewidth=1)
        bottom.set(xlabel="symbols, by market and rank", ylabel="messages/s", ylim=(0, None))
        bottom.xaxis.set_major_formatter("{x:,.0f}")
        for axes in (top, bottom):
            axes.set_xlim(0, FLOOR.symbols)
            for start in first[1:-1]:
                axes.axvline(start, color="#c9ced4", linewidth=0.6)

    return draw_chart(
        "tock-fig4",
        "Interest and message rates of a trading floor",
        (9, 6),
        paint,
        shape=(2, 1),
        heights=(2.6, 1),
    )
