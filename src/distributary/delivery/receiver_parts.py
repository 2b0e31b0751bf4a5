"""The parts of a receiver that all its publishers share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distributary.delivery.feedback import Feedback
from distributary.delivery.flow_router import FlowRouter
from distributary.delivery.latency import Latencies
from distributary.delivery.lines import Lines
from distributary.delivery.reassembly import Reassembly
from distributary.delivery.receiver_params import ReceiverParams
from distributary.delivery.subscriptions import Subscriptions
from distributary.model import IntArray

__all__ = ["ReceiverParts"]


class ReceiverParts(NamedTuple):
    """What a receiver is made of, besides its publishers."""

    params: ReceiverParams
    subs: Subscriptions
    reassembly: Reassembly
    router: FlowRouter
    feedback: Feedback
    lines: Lines
    latencies: Latencies
    counts: IntArray
    rng: np.random.Generator
