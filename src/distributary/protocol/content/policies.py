"""Covering policies: what a broker may leave unsaid, and how it takes back what it said.

A subscription that another one covers brings nothing that the other does not bring, so it need not
be forwarded where the other was. The price comes when the other one ends: all that it had hidden
must be said then, at once in the classic policies.

References: Chen et al. (2011) for the first five; "merging" is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COVERING_POLICIES", "Covering", "Pacing", "Pruning"]


@dataclass(frozen=True, slots=True)
class Pruning:
    """When an unsubscription stops on its way, so that the rest of its tree is preserved.

    `threshold` is the share of its publications that somebody else must want at a broker for the
    subscription to be preserved beyond it. Where at most `few` others ever wanted one of its
    publications, no burst is to be feared and it goes all the way. `window` is how many of the
    latest publications of each subscription its broker remembers.
    """

    threshold: float = 0.9
    few: int = 10
    window: int = 64

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError(f"the threshold is a share above 0 and up to 1, not {self.threshold}")
        if self.window < 1:
            raise ValueError(f"a window of {self.window} publications tells nothing")


@dataclass(frozen=True, slots=True)
class Pacing:
    """How slowly the work that can wait is done on a link: nothing is said before an echo is back.

    A probe goes the way of the statements, through the queues of both brokers. After its echo the
    link rests for `patience` times as long as the echo took, at least `pause` seconds: so of the
    time that the slower of the two brokers has to spare, a fixed share at most is used, and its
    queue never holds more than one of these statements for each of its links.
    """

    pause: float = 0.05
    patience: float = 1.0


@dataclass(frozen=True, slots=True)
class Covering:
    """A policy, as what it does.

    `quenches`: what is covered is not forwarded. `retracts`: nor kept where it had been before.
    `packs`: statements of one cause travel in one message. `prunes`: unsubscriptions stop where
    others want the same, and what they left is swept later. `merges`: what a subscription had
    hidden is said as one exact union when time allows, and the subscription stands until then.
    """

    name: str
    quenches: bool = True
    retracts: bool = True
    packs: bool = False
    prunes: Pruning | None = None
    merges: bool = False
    sweeps: bool = True
    pacing: Pacing = Pacing()


COVERING_POLICIES = {
    policy.name: policy
    for policy in (
        Covering("none", quenches=False, retracts=False),
        Covering("active"),
        Covering("lazy", retracts=False),
        Covering("packing", packs=True),
        Covering("pruning", prunes=Pruning(), pacing=Pacing(pause=5.0, patience=4.0)),
        Covering("merging", merges=True),
    )
}
