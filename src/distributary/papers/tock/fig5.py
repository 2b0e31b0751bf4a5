"""Fig. 5: the cost of the two filters, measured here on a real receiver."""

from __future__ import annotations

import numpy as np

from distributary.delivery.udp.calibration import FLOWS, Calibration, CalibrationParams
from distributary.delivery.udp.isolated import calibrate_in_isolation
from distributary.papers.drawing import COLOURS, Sheet, draw_chart, draw_legend
from distributary.papers.figure import DEFAULT_SEED, Claim, Figure
from distributary.papers.wording import NOTHING, table
from distributary.planning import Progress, Step, silent

__all__ = ["fig5", "judge"]

FACTORS = (1, 2, 4, 8, 16, 24, 40)
QUICK_FACTORS = (1, 4, 8, 40)
ROUNDS, QUICK_ROUNDS = 3, 1
PER_CENT = 1e6  # CPU seconds a message -> % of a CPU at 10,000 messages/s, the paper's unit
TYPICAL = 8  # messages per packet
GOOD_FIT = 0.9  # R2
ABOUT_EQUAL = 2.0  # times


def fig5(*, quick: bool = False, seed: int = DEFAULT_SEED, progress: Progress = silent) -> Figure:
    """alpha(h) and beta(h) of our receiver with their fits; measured, so runs differ."""
    whole, one = (
        _calibrate(quick, wanted_flows, Step("calibrating", done, 2), progress)
        for done, wanted_flows in enumerate((FLOWS, 1))
    )
    progress(Step("calibrating", 2, 2))
    where = "address" if whole.params.unicast else "multicast group"
    return Figure(
        name="tock-fig5",
        title="What the two filters cost a receiver",
        source="Tock et al. (2005), Fig. 5 and section 5.2",
        shown=(
            "The price of a message of 200 bytes at the session filter (alpha) and at the flow "
            "filter (beta), against h messages per packet, in % of a CPU at 10,000 messages/s, "
            f"which is microseconds of CPU a message. Two sessions of {FLOWS} flows on one "
            f"{where}. On the left the receiver wants all flows of one session, as in the paper; "
            f"on the right one of them. Each from {len(whole.points)} measurements of the "
            f"receiver's CPU time, medians of {whole.params.rounds}."
        ),
        columns=("wanted_flows", "h", "alpha", "alpha_fit", "beta", "beta_fit", "r2"),
        rows=tuple(
            (
                found.params.wanted_flows,
                price.h,
                PER_CENT * price.alpha,
                PER_CENT * found.alpha.at(price.h),
                PER_CENT * price.beta,
                PER_CENT * found.beta.at(price.h),
                price.r2,
            )
            for found in (whole, one)
            for price in found.prices
        ),
        chart=_chart(whole, one),
        comparison=_comparison(whole, one),
        claims=judge(whole, one),
        notes=_notes(whole),
        own=_own_words(whole),
        quick=quick,
        seed=seed,
        measured=True,
    )


def _calibrate(quick: bool, wanted_flows: int, step: Step, progress: Progress) -> Calibration:
    progress(step)
    return calibrate_in_isolation(
        CalibrationParams(
            factors=QUICK_FACTORS if quick else FACTORS,
            seconds=0.2 if quick else 0.5,
            rounds=QUICK_ROUNDS if quick else ROUNDS,
            wanted_flows=wanted_flows,
        )
    )


def _ratio(found: Calibration) -> float:
    """alpha/beta at the paper's typical h, by the fits."""
    beta = found.beta.at(TYPICAL)
    return found.alpha.at(TYPICAL) / beta if beta else float("inf")


def _comparison(whole: Calibration, one: Calibration) -> str:
    both = (whole, one)
    rows = [
        (
            f"alpha({TYPICAL})",
            *(f"{PER_CENT * each.alpha.at(TYPICAL):.3f}" for each in both),
            "about 1",
            NOTHING,
        ),
        (
            f"beta({TYPICAL})",
            *(f"{PER_CENT * each.beta.at(TYPICAL):.3f}" for each in both),
            "about 1",
            NOTHING,
        ),
        (
            f"alpha({TYPICAL}) / beta({TYPICAL})",
            *(f"{_ratio(each):.1f}" for each in both),
            "about 1",
            NOTHING,
        ),
        (
            "alpha0, alpha1",
            *(_line(each.alpha.constant, each.alpha.per_packet) for each in both),
            "not printed",
            NOTHING,
        ),
        (
            "beta0, beta1",
            *(_line(each.beta.constant, each.beta.per_packet) for each in both),
            "not printed",
            NOTHING,
        ),
    ]
    wanted = (f"ours, {FLOWS} of {FLOWS} flows wanted", f"ours, 1 of {FLOWS}")
    return table(("% CPU per 10,000 messages/s", *wanted, "paper", "independent"), rows)


def _line(constant: float, per_packet: float) -> str:
    return f"{PER_CENT * constant:.3f}, {PER_CENT * per_packet:.3f}"


def judge(whole: Calibration, one: Calibration) -> tuple[Claim, ...]:
    """The claims, by the measurement with the whole session wanted."""
    fits = tuple(
        Claim(
            f"{word}(h) falls as {word}0 + {word}1/h",
            source,
            f"R2 {line.r2:.3f} of the fit ({other.r2:.3f} with 1 flow wanted)",
            line.r2 >= GOOD_FIT and line.per_packet > 0,
        )
        for word, line, other, source in (
            ("alpha", whole.alpha, one.alpha, "eq. 2, Fig. 5"),
            ("beta", whole.beta, one.beta, "eq. 4, Fig. 5"),
        )
    )
    ratio = _ratio(whole)
    equal = Claim(
        f"alpha and beta are about equal at h = {TYPICAL}",
        "section 5.2",
        f"alpha is {ratio:.1f} times beta ({_ratio(one):.1f} times with 1 flow wanted)",
        1 / ABOUT_EQUAL <= ratio <= ABOUT_EQUAL,
    )
    return (*fits, equal)


def _own_words(whole: Calibration) -> str:
    both = PER_CENT * (whole.alpha.at(TYPICAL) + whole.beta.at(TYPICAL))
    return (
        f"At h = {TYPICAL} our receiver's two prices add up to {both:.2g} % of a CPU for 10,000 "
        "messages/s, delivery to the application included, where the paper's add up to about 2 %. "
        "How much of the difference is due to the machines cannot be told from this."
    )


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
        "Section 5.2 sets the receiver to accept S1 and says nothing of flows that it does not "
        "want, so the claims are judged with all of S1 wanted. Then beta includes the delivery of "
        f"each message to the application, here one that only counts them. With 1 flow in {FLOWS} "
        "wanted, beta is nearly the price of the filter alone, which is what a plan can save and "
        "what `calibrate` measures.",
        f"About equal is read as within a factor of {ABOUT_EQUAL:g}.",
        "On the loopback the sender does the network's part of the work; alpha is what remains "
        "for the receiver: reading packets from the system, and the session filter.",
        "The authors' messaging layer processes messages one by one; ours reads the headers of "
        "many packets in one compiled pass. If beta is far below alpha, sessions matter less and "
        "groups more, as the paper itself concludes; `plan --calibration` uses the measured "
        "prices.",
    )


def _chart(whole: Calibration, one: Calibration) -> str:
    def paint(sheet: Sheet) -> None:
        for axes, found in zip(sheet.panels, (whole, one), strict=True):
            h = [price.h for price in found.prices]
            smooth = np.linspace(min(h), max(h), 200)
            for word, line, values, colour in (
                ("alpha", found.alpha, [price.alpha for price in found.prices], COLOURS["GF"]),
                ("beta", found.beta, [price.beta for price in found.prices], COLOURS["SF"]),
            ):
                axes.plot(h, PER_CENT * np.array(values), "o", color=colour, label=f"{word}(h)")
                fitted = PER_CENT * (line.constant + line.per_packet / smooth)
                axes.plot(smooth, fitted, color=colour, label=f"fit {word}0 + {word}1/h")
            axes.set_title(f"{found.params.wanted_flows} of {FLOWS} flows of S1 wanted")
            axes.set(xlabel="h, messages per packet", ylim=(0, None))
        sheet.panels[0].set_ylabel("% CPU per 10,000 messages/s")
        top = max(axes.get_ylim()[1] for axes in sheet.panels)
        for axes in sheet.panels:
            axes.set_ylim(0, top)
        draw_legend(sheet)

    return draw_chart(
        "tock-fig5", "What the two filters cost a receiver", (9, 4), paint, shape=(1, 2)
    )
