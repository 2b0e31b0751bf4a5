"""Packet loss injected at the receiver, for tests and for measuring repair."""

from __future__ import annotations

import numpy as np

from distributary.delivery.udp.datagrams import Batch, keep_datagrams

__all__ = ["Loss"]


class Loss:
    """Loses each packet with a probability; the same seed loses the same ones of a sequence."""

    def __init__(self, share: float, seed: int = 0) -> None:
        if not 0 <= share < 1:
            raise ValueError(f"the share of lost packets is from 0 to below 1, not {share}")
        self.share = share
        self.lost = 0
        self._rng = np.random.default_rng(seed)

    def thin(self, batch: Batch) -> Batch:
        """Drop packets of a batch at random; returns the rest."""
        if not self.share:
            return batch
        kept = np.flatnonzero(self._rng.random(len(batch.offsets)) >= self.share)
        self.lost += len(batch.offsets) - len(kept)
        return keep_datagrams(batch, kept)
