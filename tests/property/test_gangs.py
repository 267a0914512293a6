"""Gangs start whole or never: random jobs under every preset, and packing against all ways."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm.placing.gang_room import Need, pack
from sim.process.gang_walk import gang_walk
from weft.policies.presets import PRESETS


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2 * len(PRESETS)))
def test_a_gang_starts_at_one_instant_or_never(seed: int) -> None:
    """Each preset in both paces; `make gangs` runs a thousand."""
    gang_walk(seed)


@st.composite
def needs(draw: st.DrawFn) -> tuple[Need, np.ndarray]:
    """Up to three kinds of container and three nodes, each kind allowed on some of them."""
    kinds, nodes = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    amount = st.integers(0, 4).map(float)
    demand = np.array(draw(st.lists(st.tuples(amount, amount), min_size=kinds, max_size=kinds)))
    wanted = np.array(draw(st.lists(st.integers(1, 3), min_size=kinds, max_size=kinds)))
    able = st.lists(st.booleans(), min_size=nodes, max_size=nodes)
    usable = np.array(draw(st.lists(able, min_size=kinds, max_size=kinds)))
    room = st.tuples(*[st.integers(0, 6).map(float)] * 2)
    free = np.array(draw(st.lists(room, min_size=nodes, max_size=nodes)))
    far = np.array(
        draw(
            st.lists(
                st.lists(st.integers(0, 2), min_size=nodes, max_size=nodes),
                min_size=kinds,
                max_size=kinds,
            )
        )
    )
    return Need(demand, wanted, usable, far), free


def _possible(need: Need, free: np.ndarray) -> bool:
    """Whether some assignment of every container to a node fits."""
    each = [kind for kind, count in enumerate(need.wanted) for _ in range(count)]
    for nodes in product(range(len(free)), repeat=len(each)):
        if not all(need.usable[kind, node] for kind, node in zip(each, nodes, strict=True)):
            continue
        left = free.copy()
        for kind, node in zip(each, nodes, strict=True):
            left[node] -= need.demand[kind]
        if (left >= 0).all():
            return True
    return False


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(needs())
def test_what_is_packed_fits_and_one_kind_is_packed_whenever_it_can_be(
    case: tuple[Need, np.ndarray],
) -> None:
    need, free = case
    placed = pack(need, free, np.full_like(free, 6.0))
    if placed is None:
        assert len(need.wanted) > 1 or not _possible(need, free)
        return
    assert (placed.sum(axis=1) == need.wanted).all()
    assert (placed[~need.usable] == 0).all()
    used = placed.T @ need.demand
    assert (used <= free + 1e-5).all()
