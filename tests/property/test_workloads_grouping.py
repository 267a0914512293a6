"""Whatever the graph of tasks, its stages say exactly its edges."""

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.model.job import Edge, one_to_one_parents
from weft.workloads.stage_grouping import group_tasks


@st.composite
def graphs(draw):
    """Layers of tasks of few kinds, joined completely, in blocks, or anyhow."""
    kinds, parents, before = [], [], []
    for layer in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 6))
        how = draw(st.sampled_from(["none", "all", "blocks", "any"]))
        now = list(range(len(kinds), len(kinds) + size))
        for index in range(size):
            kinds.append(draw(st.sampled_from("ab")) if how == "any" else f"k{layer}")
            if how == "all":
                parents.append(list(before))
            elif how == "blocks" and before:
                parents.append([before[i] for i in one_to_one_parents(len(before), size, index)])
            elif how == "any" and now[0]:
                parents.append(sorted(draw(st.sets(st.integers(0, now[0] - 1), max_size=4))))
            else:
                parents.append([])
        before = now
    order = draw(st.permutations(range(len(kinds))))
    place = {task: position for position, task in enumerate(order)}
    return [kinds[t] for t in order], [[place[p] for p in parents[t]] for t in order]


def edges_of(groups):
    edges = []
    for group in groups:
        for number, kind, pairs in group.parents:
            above = groups[number].tasks
            edge = Edge("", kind, pairs)
            for position, child in enumerate(group.tasks):
                wanted = edge.parent_tasks(len(above), len(group.tasks), position)
                edges += [(above[i], child) for i in wanted]
    return edges


@given(graphs())
@settings(max_examples=150, deadline=None)
def test_stages_say_exactly_the_edges_of_the_tasks(graph):
    kinds, parents = graph
    groups = group_tasks(kinds, parents)
    assert sorted(t for g in groups for t in g.tasks) == list(range(len(kinds)))
    assert all(len({kinds[t] for t in g.tasks}) == 1 for g in groups)
    assert sorted(edges_of(groups)) == sorted((p, c) for c, a in enumerate(parents) for p in a)
