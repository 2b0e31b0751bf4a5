"""A plan that follows a demand: within its terms, or not at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributary.model import Interest
from distributary.pipeline.following import find_unserved
from tests.oracles import plain
from tests.strategies import any_plans, interests


@given(data=st.data(), interest=interests())
def test_who_misses_what_is_what_the_plan_does_not_bring(
    data: st.DataObject, interest: Interest
) -> None:
    wanted = {
        (interest.receivers[r], flow)
        for k, flow in enumerate(interest.flows)
        for r in interest.receivers_of(k)
    }
    alone = data.draw(st.sets(st.sampled_from(sorted(wanted))))
    pairs = sorted((interest.receivers.index(r), interest.flows.index(f)) for r, f in alone)
    table = np.array(pairs, np.int32).reshape(-1, 2)
    plan = replace(
        data.draw(any_plans(interest)), unicast_receiver=table[:, 0], unicast_flow=table[:, 1]
    )
    it = plain(plan)
    brought = {
        (plan.receivers[receiver], plan.flows[flow])
        for flow, carrying in it.placed
        for receiver, session in it.subscribed
        if session == carrying
    }
    assert find_unserved(plan, interest) == sorted(wanted - brought - alone)
    assert find_unserved(None, interest) == sorted(wanted)
