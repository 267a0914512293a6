"""Guarantees that move between members: every sum stays, and nobody loses where all ask alike."""

from dataclasses import replace

import numpy as np
import pytest

from weft.model.queues import Absolute, QueueSpec, digest_of, queues_from_dict, queues_to_dict
from weft.policies.shares import FLOOR, MISPLACED, STEP, Member, moves, shared, whole
from weft.protocol.requests import SetQueues
from weft.wire.codec import CALLS

EVEN = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))


def drawn(rng: np.random.Generator, name: str = "root", depth: int = 0) -> QueueSpec:
    """A tree of up to three levels; some guarantees are nobody's, some queues may hold no more."""
    count = 0 if depth and rng.random() < 0.5 else int(rng.integers(1, 5))
    parts = rng.dirichlet(np.ones(count + int(rng.random() < 0.5))) if count else []
    children = []
    for at in range(count if depth < 3 else 0):
        child = drawn(rng, f"{name}{at}"[-12:], depth + 1)
        most = float(rng.choice([1.0, 1.0, parts[at], rng.uniform(parts[at] * 0.5, 1.0)]))
        children.append(replace(child, capacity=float(parts[at]), max_capacity=most))
    return QueueSpec(name, children=tuple(children))


def members_of(rng: np.random.Generator, tree: QueueSpec) -> list[Member]:
    count = int(rng.integers(1, 6))
    paths = [path for path, _ in tree.walk()]
    sizes = [1.0, *rng.choice([1.0, rng.exponential(), 0.0], count - 1, p=[0.6, 0.3, 0.1])]
    return [Member(tree, wants(rng, paths), float(size)) for size in sizes]


def wants(rng: np.random.Generator, paths: list[str]) -> dict[str, float]:
    """What leaves want, a few very much; queues above want the sum."""
    found = dict.fromkeys(paths, 0.0)
    for path in paths:
        if not any(other.startswith(f"{path}.") for other in paths):
            amount = float(rng.choice([0.0, rng.random(), 20.0, rng.exponential() * 0.1]))
            names = path.split(".")
            for depth in range(len(names)):
                found[".".join(names[: depth + 1])] += amount
    return found


def after(members: list[Member]) -> list[Member]:
    trees = shared(members)
    return [replace(one, tree=tree) for one, tree in zip(members, trees, strict=True)]


def guarantees(members: list[Member]) -> dict[str, np.ndarray]:
    """By path what each member guarantees, as a fraction of the whole cluster."""
    size = sum(one.size for one in members)
    found: dict[str, list[float]] = {}
    for one in members:
        own: dict[str, float] = {}
        for path, queue in one.tree.walk():
            part = min(queue.capacity, queue.max_capacity)
            own[path] = own.get(path.rpartition(".")[0], 1.0) * part
            found.setdefault(path, []).append(own[path] * one.size / size)
    return {path: np.array(row) for path, row in found.items()}


@pytest.mark.parametrize("seed", range(120))
def test_every_sum_stays(seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    tree = drawn(rng)
    before = members_of(rng, tree)
    moved = after(before)
    said = guarantees(before)
    for path, row in guarantees(moved).items():
        assert row.sum() == pytest.approx(said[path].sum(), abs=1e-9)
    for one in moved:
        assert whole(one.tree) == tree
        for _, queue in one.tree.walk():
            assert sum(child.capacity for child in queue.children) <= max(
                1 + 1e-9, sum(child.capacity for child in whole(queue).children) + 1e-9
            )
        # A manager takes it, and its journal gives it back.
        assert queues_from_dict(queues_to_dict(one.tree)) == one.tree


@pytest.mark.parametrize("seed", range(120))
def test_once_moved_nothing_moves_for_the_same_wants(seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    once = after(members_of(rng, drawn(rng)))
    assert shared(once) == [one.tree for one in once]


@pytest.mark.parametrize("seed", range(60))
def test_where_all_ask_alike_everybody_has_his_own_in_each_member(seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    tree = drawn(rng)
    before = members_of(rng, tree)
    alike = [replace(one, wanted=dict.fromkeys(before[0].wanted, 3.0)) for one in before]
    # Also after they asked otherwise.
    unlike = [
        replace(one, tree=moved.tree) for one, moved in zip(alike, after(before), strict=True)
    ]
    for members in (alike, unlike):
        got, said = guarantees(after(members)), guarantees(alike)
        for path, row in got.items():
            assert (row >= said[path] - 2 * MISPLACED * said[path].sum() - 1e-9).all()


@pytest.mark.parametrize("seed", range(60))
def test_the_least_served_queue_never_gets_less_than_where_it_stays(seed: int) -> None:
    rng = np.random.default_rng([seed, 4])
    count, sizes = int(rng.integers(2, 6)), rng.uniform(0.5, 2.0, int(rng.integers(2, 6)))
    names = [f"q{at}" for at in range(count)]
    tree = QueueSpec("root", children=tuple(QueueSpec(name, 1 / count) for name in names))
    paths = ["root", *(f"root.{name}" for name in names)]
    before = [Member(tree, wants(rng, paths), float(size)) for size in sizes]

    def least(members: list[Member]) -> float:
        """The least part of what it could have that a queue has."""
        found = [1.0]
        for path, row in guarantees(members).items():
            want = np.array([one.wanted[path] * one.size / sum(sizes) for one in members])
            if (could := min(row.sum(), want.sum())) > 0:
                found.append(float(np.minimum(row, want).sum() / could))
        return min(found)

    moved = after(before)
    assert moved == before or least(moved) >= least(before) - FLOOR - STEP


def test_no_part_is_rounded_to_more_than_all_of_a_member() -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        below = tuple(
            QueueSpec(f"q{at}", part) for at, part in enumerate(rng.dirichlet(np.ones(3)).tolist())
        )
        tree = QueueSpec("root", children=(QueueSpec("g", children=below), QueueSpec("h", 0.0)))
        paths = [path for path, _ in tree.walk()]
        members = [
            Member(tree, wants(rng, paths) | {"root": 9.0}, float(rng.random() + 0.1))
            for _ in range(3)
        ]
        for one in after(members):
            assert queues_from_dict(queues_to_dict(one.tree)) == one.tree


def asks(a: float, b: float) -> dict[str, float]:
    return {"root": a + b, "root.a": a, "root.b": b}


def test_a_queue_has_its_share_of_the_whole_where_its_work_is() -> None:
    one, two = after([Member(EVEN, asks(9.0, 0.0), 1.0), Member(EVEN, asks(0.0, 9.0), 1.0)])
    assert one.tree.children[0].capacity == pytest.approx(1.0, abs=FLOOR)
    assert two.tree.children[1].capacity == pytest.approx(1.0, abs=FLOOR)
    assert one.tree.children[0].whole_capacity == 0.5


def test_nothing_moves_where_everybody_gets_all_that_he_asks() -> None:
    members = [Member(EVEN, asks(0.8, 0.0), 1.0), Member(EVEN, asks(0.0, 0.1), 1.0)]
    assert shared(members) == [EVEN, EVEN]


def test_what_an_operator_sets_holds_and_is_kept_while_not_all_have_heard() -> None:
    moved = after([Member(EVEN, asks(9.0, 0.0), 1.0), Member(EVEN, asks(0.0, 9.0), 1.0)])
    other = replace(EVEN, children=(QueueSpec("a", 0.2), QueueSpec("b", 0.8)))
    halfway = [replace(moved[0], tree=other), moved[1]]
    assert shared(halfway) == [other, moved[1].tree]
    done = after([replace(one, tree=other) for one in moved])
    assert [whole(one.tree) for one in done] == [other, other]
    # a's 20 % of the whole are 40 % of the one where it asks.
    assert done[0].tree.children[0].capacity == pytest.approx(0.4, abs=FLOOR)


def test_a_member_that_lost_nodes_has_its_sums_mended() -> None:
    moved = after([Member(EVEN, asks(9.0, 9.0), 1.0), Member(EVEN, asks(0.0, 9.0), 1.0)])
    less = [replace(moved[0], size=0.5), moved[1]]
    assert guarantees(less)["root.a"].sum() != pytest.approx(0.5, abs=STEP)
    assert guarantees(after(less))["root.a"].sum() == pytest.approx(0.5)


def test_amounts_and_queues_that_are_made_stay() -> None:
    fixed = replace(EVEN.children[0], absolute={"": Absolute({"vcores": 1.0}, {})})
    assert not moves(replace(EVEN, children=(fixed, EVEN.children[1])))
    assert not moves(QueueSpec("root", children=(QueueSpec("default"),)))
    made = replace(EVEN, children=(*EVEN.children, QueueSpec("m", 0.0, expires_s=5.0)))
    assert whole(made) == EVEN


def test_the_digest_is_the_same_after_the_wire() -> None:
    (moved, _) = after([Member(EVEN, asks(9.0, 0.0), 1.0), Member(EVEN, asks(0.0, 9.0), 1.0)])
    call = CALLS[SetQueues]
    request = SetQueues(moved.tree, base=digest_of(EVEN))
    got = call.decode_request(call.encode_request(request))
    assert got == request
    assert digest_of(got.queues) == digest_of(moved.tree) != digest_of(EVEN)
