"""Covering policies: which subscriptions a broker need not forward, and how it retracts them.

A covered subscription adds nothing to the one that covers it, so it need not be forwarded where the
other was. The cost comes when the covering one ends: everything that it had hidden must then be
sent, in the classic policies at once.

References: Chen et al. (2011) for the first five; "merging" is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COVERING_POLICIES", "Covering", "Pacing", "Pruning"]


@dataclass(frozen=True, slots=True)
class Pruning:
    """Where an unsubscription stops, so that the rest of its tree is preserved.

    The subscription is preserved beyond a broker at which others want at least a share `threshold`
    of its publications. If at most `few` others ever wanted one of its publications, no burst is to
    be expected and the unsubscription travels all the way. A broker remembers the last `window`
    publications of each subscription, each for `expires` seconds. The paper's entries expire "after
    a configurable time", which it does not say; an hour is as long as its experiment publishes
    before the first subscription ends.
    """

    threshold: float = 0.9
    few: int = 10
    window: int = 64
    expires: float = 3600.0

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError(f"the threshold must be above 0 and at most 1, not {self.threshold}")
        if self.window < 1:
            raise ValueError(f"the window must hold at least 1 publication, not {self.window}")
        if not self.expires > 0:
            raise ValueError(f"publications must expire after more than 0 s, not {self.expires}")


@dataclass(frozen=True, slots=True)
class Pacing:
    """The pace of deferred work on a link: one step, then wait for an echo, then rest.

    A probe follows the statements through the queues of both brokers. After its echo the link rests
    for `patience` times the round trip, and at least for `pause` seconds. Deferred work thus takes
    at most a fixed share of the slower broker's spare time, and its queue never holds more than one
    such step per link. A step compares at most `compared` subscriptions with others and sends at
    most `unions` of those of "merging", so that it delays publications for some milliseconds only.
    """

    pause: float = 0.05
    patience: float = 1.0
    compared: int = 250
    unions: int = 4

    def __post_init__(self) -> None:
        if min(self.compared, self.unions) < 1:
            raise ValueError(
                f"a step compares and sends at least 1, not {self.compared} and {self.unions}"
            )


@dataclass(frozen=True, slots=True)
class Covering:
    """A policy as a set of switches.

    `quenches`: covered subscriptions are not forwarded. `retracts`: nor are they kept where they
    had been forwarded before. `packs`: statements with one cause travel in one message. `prunes`:
    unsubscriptions stop where others want the same events, and `sweeps` removes the remnants later.
    `merges`: what a subscription had hidden is sent later as one exact union, and the subscription
    stays until then.
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
