"""The periods and time-outs of overlay peers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_PARAMETERS", "OverlayParameters"]


@dataclass(frozen=True, slots=True)
class OverlayParameters:
    """All times are in seconds.

    - `leaf_period`, `tree_period`: between keep-alives to the leaf set, and to children in trees.
    - `misses`: a peer that is silent for this many periods counts as failed.
    - `refresh_every`: a child refreshes its parent after this many tree periods.
    - `patience`: time-out for an answer; far above the network's round trip.
    - `replicas`: an event is accepted once this many peers besides the root have it.
    - `give_up`: how long a new root waits for a majority of a group's members before it goes on
      without them; 0 if it does not wait.
    - `seek_for`: how long a peer that was lost is looked for; without, a ring that was partitioned
      stays in parts.
    - `window`: how many of a group's last events a peer keeps for retransmission to children.
    - `per_neighbour`: send a child one keep-alive for all trees instead of one for each.
    """

    leaf_set: int = 16
    leaf_period: float = 30.0
    tree_period: float = 30.0
    misses: int = 3
    refresh_every: int = 4
    patience: float = 2.0
    replicas: int = 3
    give_up: float = 0.0
    seek_for: float = 0.0
    window: int = 1024
    max_hops: int = 40
    per_neighbour: bool = False

    def __post_init__(self) -> None:
        if min(self.leaf_period, self.tree_period, self.patience) <= 0:
            raise ValueError("periods and patience must be above 0")
        if min(self.misses, self.refresh_every, self.window, self.max_hops) < 1:
            raise ValueError("misses, refresh_every, window and max_hops must be at least 1")
        if not 0 <= self.give_up < float("inf"):
            raise ValueError(f"give_up must be finite and at least 0, not {self.give_up}")
        if not 0 <= self.replicas <= self.leaf_set:
            raise ValueError(
                f"replicas must be from 0 to the leaf set's {self.leaf_set}, not {self.replicas}"
            )

    @property
    def waits_for_members(self) -> bool:
        """Whether a root waits for a majority of a group's members."""
        return self.give_up > 0


DEFAULT_PARAMETERS = OverlayParameters()
