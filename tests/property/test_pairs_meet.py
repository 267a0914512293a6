"""Where two features meet: every pair in a small cluster, judged by facts alone."""

from itertools import combinations, product

import pytest

from testkit.meetings.covering import covering
from testkit.meetings.drawn import draw
from testkit.meetings.features import DIMENSIONS, FAULTS, row_of, rows, text_of
from testkit.meetings.search import problems, search

pytestmark = pytest.mark.slow

PARTS = 8


def _problems(number: int, *, faults: bool) -> list[str]:
    chosen = rows(2, faults=faults)
    size = -(-len(chosen) // PARTS)
    first = number * size
    found = search(chosen[first : first + size], first)
    return [f"{one.problem}: {one.command}" for one in found]


@pytest.mark.parametrize("part", range(PARTS))
def test_where_two_features_meet_every_promise_holds(part: int) -> None:
    """`make meetings` has every three of them."""
    assert not _problems(part, faults=False)


@pytest.mark.parametrize("part", range(PARTS))
def test_where_a_fault_meets_a_feature_nothing_is_left_over(part: int) -> None:
    assert not _problems(part, faults=True)


@pytest.mark.parametrize(
    ("seed", "row"),
    [
        # Where a node gets free at the moment in which another is kept, nobody starves.
        (
            18,
            "asker=cobra planner=optimal line=crowd sizes=large gang=one place=node maximum=queue "
            "preemption=users lifetime=far speed=mixed overbook=network estimates=wrong",
        ),
        # A queue goes first for the sake of a leaf below it, under `fifo`, too.
        (
            24,
            "matcher=fifo asker=static planner=graphene pace=prompt line=backlog sizes=large "
            "nodes=unlike masters=foreign gang=wide label=one place=prefer black=failing "
            "tree=deep priority=mixed preemption=queues lifetime=far overbook=network",
        ),
        # In a line nobody is owed a node before an earlier application.
        (
            25,
            "asker=reuse line=crowd sizes=mixed nodes=unlike masters=many gang=few label=half "
            "place=prefer weights=zero users=factor maximum=queue lifetime=near estimates=wrong",
        ),
        # A queue's first container may be taken from within the dead zone below a guarantee.
        (
            37,
            "asker=static planner=heft line=stream sizes=mixed masters=foreign place=rack "
            "tree=deep weights=skewed maximum=queue preemption=queues overbook=network "
            "estimates=wrong",
        ),
        # A task of a gang that nodes are kept for fails and asks again.
        (
            51,
            "matcher=fair asker=carbyne planner=graphene pace=prompt line=stream sizes=large "
            "gang=few place=rack black=failing weights=zero maximum=queue priority=mixed "
            "preemption=users",
        ),
        # What an application that is over still holds does not count for its queue.
        (
            85,
            "matcher=graphene asker=reuse line=stream sizes=unlike nodes=unlike label=one "
            "place=prefer tree=deep weights=skewed maximum=queue priority=mixed "
            "preemption=queues lifetime=near overbook=network estimates=wrong",
        ),
        # Masters start first, and reusable containers end on the node that is kept when they do.
        (
            94,
            "matcher=fair asker=reuse planner=graphene pace=prompt line=crowd sizes=unlike "
            "masters=many gang=one place=node black=failing tree=two maximum=masters "
            "priority=mixed lifetime=far estimates=wrong",
        ),
        # A gang passes a user's limit as one container does, however much it needs.
        (
            110,
            "asker=cobra planner=heft line=backlog sizes=large masters=foreign gang=wide "
            "label=half place=rack tree=two weights=skewed users=shared preemption=users "
            "lifetime=near speed=mixed overbook=network",
        ),
        # How many large asks are ahead is another number each time a wait begins.
        (
            117,
            "matcher=graphene asker=disposable pace=prompt line=crowd sizes=large nodes=unlike "
            "masters=foreign gang=wide label=half place=prefer black=failing tree=two "
            "maximum=queue priority=mixed speed=mixed overbook=network estimates=wrong",
        ),
        # What should end before a stopped container could does not count for its queue, and
        # nothing is taken for a gang that it can do without.
        (
            138,
            "matcher=tetris asker=reuse planner=heft line=crowd sizes=unlike masters=foreign "
            "gang=wide label=one tree=deep weights=skewed users=factor preemption=queues "
            "lifetime=near speed=mixed overbook=network",
        ),
        # A gang whose turn it is on one node does not start on others, where it is not.
        (
            364,
            "matcher=sjf asker=cobra planner=graphene pace=prompt line=backlog sizes=mixed "
            "masters=foreign gang=wide label=one place=node black=failing tree=two "
            "weights=skewed maximum=queue preemption=users lifetime=near estimates=wrong",
        ),
        # Who is owed a gang's nodes is compared where two queues' ways down the tree part.
        (
            190,
            "matcher=carbyne asker=disposable planner=optimal line=crowd masters=foreign gang=few "
            "label=one tree=deep weights=skewed maximum=queue lifetime=far speed=mixed "
            "overbook=network estimates=wrong",
        ),
    ],
)
def test_rows_of_three_that_were_found_wanting_hold(seed: int, row: str) -> None:
    assert not list(problems(draw(row_of(row.split()), seed), relations_max=0))


def test_nobody_waits_long_behind_a_node_that_is_kept_in_vain() -> None:
    """With one node more a reusable container runs for 260 s on the node that all wait for."""
    words = (
        "matcher=tetris asker=dynamic planner=optimal nodes=unlike label=one tree=two "
        "users=shared maximum=queue lifetime=near overbook=network estimates=wrong"
    )
    assert not list(problems(draw(row_of(words.split()), 182), relations_max=1))


def test_a_beat_that_tells_of_less_work_is_not_left_out() -> None:
    """A master that reuses containers asks for nothing in it, and a matcher orders by that work."""
    words = (
        "matcher=tetris asker=reuse line=stream sizes=large gang=few label=one place=node "
        "black=failing tree=deep weights=zero users=shared maximum=queue lifetime=far"
    )
    assert not list(problems(draw(row_of(words.split()), 7275), relations_max=1))


@pytest.mark.parametrize("strength", [2, 3])
def test_all_values_meet_in_few_rows(strength: int) -> None:
    sizes = [4, 3, 3, 2, 2]
    found = covering(sizes, strength)
    for group in combinations(range(len(sizes)), strength):
        wanted = set(product(*(range(sizes[d]) for d in group)))
        assert {tuple(row[d] for d in group) for row in found} == wanted
    assert len(found) <= {2: 16, 3: 50}[strength]


def test_a_row_is_read_as_it_is_told() -> None:
    for row in rows(2, faults=True):
        assert row_of(text_of(row).split()) == row
    with pytest.raises(ValueError, match="there is no"):
        row_of(["matcher=none"])
    assert len(FAULTS) + len(DIMENSIONS) > 20
