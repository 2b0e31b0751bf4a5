"""Fig. 5: the cost of the two filters, measured here on a real receiver."""

from __future__ import annotations

import numpy as np

from distributary.delivery.udp.calibration import Calibration, CalibrationParams
from distributary.delivery.udp.isolated import calibrate_in_isolation
from distributary.papers.drawing import COLOURS, Sheet, draw_chart
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, table
from distributary.planning import Progress, Step, silent

__all__ = ["fig5"]

FACTORS = (1, 2, 4, 8, 12, 16, 24, 32, 40)
QUICK_FACTORS = (1, 4, 8, 40)
ROUNDS, QUICK_ROUNDS = 3, 1
PER_CENT = 1e6  # CPU seconds a message -> % of a CPU at 10,000 messages/s, the paper's unit
TYPICAL = 8  # messages per packet
GOOD_FIT = 0.9  # R2
ABOUT_EQUAL = 2.0  # times


def fig5(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """alpha(h) and beta(h) of our receiver with their fits; measured, so runs differ."""
    progress(Step("calibrating", 0, 1))
    params = CalibrationParams(
        factors=QUICK_FACTORS if quick else FACTORS,
        seconds=0.2 if quick else 0.5,
        rounds=QUICK_ROUNDS if quick else ROUNDS,
    )
    found = calibrate_in_isolation(params)
    progress(Step("calibrating", 1, 1))
    return Figure(
        name="tock-fig5",
        title="What the two filters cost a receiver",
        source="Tock et al. (2005), Fig. 5 and section 5.2",
        shown=(
            "The price of a message of 200 bytes at the session filter (alpha) and at the flow "
            "filter (beta), against h messages per packet, in % of a CPU at 10,000 messages/s, "
            "which is microseconds of CPU a message. Two sessions on one "
            f"{'address' if found.params.unicast else 'multicast group'}, one of them wanted; "
            f"{len(found.points)} measurements of the receiver's CPU time."
        ),
        columns=("h", "alpha", "alpha_fit", "beta", "beta_fit", "r2"),
        rows=tuple(
            (
                price.h,
                PER_CENT * price.alpha,
                PER_CENT * found.alpha.at(price.h),
                PER_CENT * price.beta,
                PER_CENT * found.beta.at(price.h),
                price.r2,
            )
            for price in found.prices
        ),
        chart=_chart(found),
        comparison=_comparison(found),
        claims=_claims(found),
        notes=_notes(found),
        quick=quick,
        seed=seed,
        measured=True,
    )


def _ratio(found: Calibration) -> float:
    """alpha/beta at the paper's typical h, by the fits."""
    beta = found.beta.at(TYPICAL)
    return found.alpha.at(TYPICAL) / beta if beta else float("inf")


def _comparison(found: Calibration) -> str:
    alpha, beta = found.alpha, found.beta
    rows = [
        (f"alpha({TYPICAL})", f"{PER_CENT * alpha.at(TYPICAL):.3f}", "about 1", NOTHING),
        (f"beta({TYPICAL})", f"{PER_CENT * beta.at(TYPICAL):.3f}", "about 1", NOTHING),
        (f"alpha({TYPICAL}) / beta({TYPICAL})", f"{_ratio(found):.1f}", "about 1", NOTHING),
        ("alpha0, alpha1", _line(alpha.constant, alpha.per_packet), "not printed", NOTHING),
        ("beta0, beta1", _line(beta.constant, beta.per_packet), "not printed", NOTHING),
    ]
    header = ("number, % CPU per 10,000 messages/s", "ours", "paper", "independent")
    return table(header, rows)


def _line(constant: float, per_packet: float) -> str:
    return f"{PER_CENT * constant:.3f}, {PER_CENT * per_packet:.3f}"


def _claims(found: Calibration) -> tuple[Claim, ...]:
    fits = tuple(
        Claim(
            f"{word}(h) falls as {word}0 + {word}1/h",
            source,
            f"R2 {line.r2:.3f} of the fit",
            line.r2 >= GOOD_FIT and line.per_packet > 0,
        )
        for word, line, source in (
            ("alpha", found.alpha, "eq. 2, Fig. 5"),
            ("beta", found.beta, "eq. 4, Fig. 5"),
        )
    )
    ratio = _ratio(found)
    equal = Claim(
        f"alpha and beta are about equal at h = {TYPICAL}",
        "section 5.2",
        f"alpha is {ratio:.1f} times beta",
        1 / ABOUT_EQUAL <= ratio <= ABOUT_EQUAL,
    )
    return (*fits, equal)


def _notes(found: Calibration) -> tuple[str, ...]:
    where = (
        "No network namespace could be made: packets went to the receiver's own address on the "
        "loopback, and not to a group."
        if found.params.unicast
        else "Measured by multicast on the loopback of a network namespace of its own."
    )
    return (
        where,
        "Eq. 9 has no constant; our fit has one, for the cost of waking up, however many "
        "messages arrive.",
        "One flow in sixteen of the wanted session is wanted, so that beta is the price of the "
        "filter and not of using messages.",
        "On the loopback the sender does the network's part of the work; alpha is what remains "
        "for the receiver: reading packets from the system, and the session filter.",
        "The authors' messaging layer processes messages one by one; ours reads the headers of "
        "many packets in one compiled pass. If beta is far below alpha, sessions matter less and "
        "groups more, as the paper itself concludes; `plan --calibration` uses the measured "
        "prices.",
    )


def _chart(found: Calibration) -> str:
    def paint(sheet: Sheet) -> None:
        (axes,) = sheet.panels
        h = [price.h for price in found.prices]
        smooth = np.linspace(min(h), max(h), 200)
        for word, line, values, colour in (
            ("alpha", found.alpha, [price.alpha for price in found.prices], COLOURS["GF"]),
            ("beta", found.beta, [price.beta for price in found.prices], COLOURS["SF"]),
        ):
            axes.plot(h, PER_CENT * np.array(values), "o", color=colour, label=f"{word}(h)")
            fitted = PER_CENT * (line.constant + line.per_packet / smooth)
            axes.plot(smooth, fitted, color=colour, label=f"fit {word}0 + {word}1/h")
        axes.set(
            xlabel="h, messages per packet", ylabel="% CPU per 10,000 messages/s", ylim=(0, None)
        )
        axes.legend()

    return draw_chart("tock-fig5", "What the two filters cost a receiver", (6.5, 4), paint)
