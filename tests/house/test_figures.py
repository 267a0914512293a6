"""The figures of the code that must not grow: sizes, parameters, circles of imports."""

import ast

import pytest

from tools import figures, walks

EVERY = figures.sources()
PURE = [source for source in EVERY if source.is_pure]
GRAPH = figures.imports(EVERY)

PACKED = ("ATTEMPT_BITS", "CONTAINER_BITS", "EPOCH_BITS")
SHIFTS = (8, 24, 32, 40)  # the same, and sums of them


def _packs(by: ast.expr) -> bool:
    """Return whether a shift by this is one of what ids pack."""
    name = getattr(by, "id", "") or getattr(by, "attr", "")
    return name in PACKED or (isinstance(by, ast.Constant) and by.value in SHIFTS)


def test_ids_are_taken_apart_in_one_place() -> None:
    """`attempt >> ATTEMPT_BITS` is `app_of_attempt`: who reads it need not know the packing."""
    bare = [
        f"{source.name}:{node.lineno}"
        for source in EVERY
        if not source.is_kernel and source.name != "weft/model/ids.py"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.LShift | ast.RShift)
        and not isinstance(node.left, ast.Constant)
        and _packs(node.right)
    ]
    assert not bare


def test_kernels_take_structures() -> None:
    """Seven arrays in a row can be swapped unseen; a NamedTuple's fields cannot."""
    wide = [
        f"{source.name}:{name}"
        for source in EVERY
        if source.is_kernel
        for name, function in source.functions()
        if figures.parameters(function) > figures.PARAMETERS_MAX
    ]
    assert not wide, f"more than {figures.PARAMETERS_MAX} parameters"


@pytest.mark.parametrize("folder", figures.FOLDERS)
def test_no_folder_has_a_circle_of_imports(folder: str) -> None:
    assert not figures.circles(figures.rooms(GRAPH, folder))


def test_the_manager_is_laid_out_in_rooms() -> None:
    """Its files and folders are few, and few of them know each other."""
    below = figures.rooms(GRAPH, "rm")
    assert len(below) <= 20, sorted(below)
    assert sum(map(len, below.values())) <= 80


def test_no_two_modules_import_each_other() -> None:
    """Not for types either: what both need lies below both."""
    assert not figures.circles(GRAPH)


def test_the_way_of_an_event_does_not_grow() -> None:
    """Files that a reader opens: from a heartbeat to its grants, from an end to the next start."""
    walks.watched("graphene", prompt=False)  # what is compiled once is no part of the way
    slow, quick = (walks.watched("graphene", prompt=prompt) for prompt in (False, True))
    assert 10 < len(walks.files(walks.heartbeat(slow))) <= 13
    assert 25 < len(walks.files(walks.task_end(quick))) <= 35


def test_pure_code_explains_itself() -> None:
    said = sum(figures.said_lines(source) for source in PURE)
    lines = sum(source.lines for source in PURE)
    assert said / lines >= 0.16


def test_pure_code_says_its_types() -> None:
    """`Any` is for tables of handlers and data that is still to be read (`weft.model.json_types`)."""
    found = {source.name: figures.anys(source) for source in PURE if figures.anys(source)}
    assert sum(found.values()) < 60, found


def test_a_circle_and_a_long_function_are_seen() -> None:
    """The measure itself: planted faults are found."""
    planted = {"a.x": {"a.y"}, "a.y": {"a.z"}, "a.z": {"a.x"}, "b.x": set[str]()}
    assert figures.circles(planted) == [["a.x", "a.y", "a.z"]]
    assert figures.rooms(planted, "a") == {"a.x": {"a.y"}, "a.y": {"a.z"}, "a.z": {"a.x"}}
