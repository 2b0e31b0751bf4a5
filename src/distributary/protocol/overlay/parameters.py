"""How often peers of the overlay say that they live, and how long they wait for each other."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_PARAMETERS", "OverlayParameters"]


@dataclass(frozen=True, slots=True)
class OverlayParameters:
    """Times in seconds.

    `leaf_period`, `tree_period`: between keep-alives to the leaf set, and to children in trees.
    `misses`: after so many periods of silence a peer counts as failed.
    `refresh_every`: after so many tree periods a child tells its parent that it is still there.
    `patience`: how long an answer may take; far above the network's delay both ways.
    `replicas`: on how many peers besides the root an event is before it counts as accepted.
    `window`: how many of a group's last events a peer keeps for children that missed some.
    `per_neighbour`: one keep-alive to a child for all trees together instead of one for each.
    """

    leaf_set: int = 16
    leaf_period: float = 30.0
    tree_period: float = 30.0
    misses: int = 3
    refresh_every: int = 4
    patience: float = 2.0
    replicas: int = 3
    window: int = 1024
    max_hops: int = 40
    per_neighbour: bool = False

    def __post_init__(self) -> None:
        if min(self.leaf_period, self.tree_period, self.patience) <= 0:
            raise ValueError("periods and patience are times above 0")
        if min(self.misses, self.refresh_every, self.window, self.max_hops) < 1:
            raise ValueError("misses, refresh_every, window and max_hops are at least 1")
        if not 0 <= self.replicas <= self.leaf_set:
            raise ValueError(f"replicas are in the leaf set: not {self.replicas}")


DEFAULT_PARAMETERS = OverlayParameters()
