"""What the code must not grow: kernels with many parameters, ids taken apart, `Any`."""

import ast

import pytest

from tools import figures

PACKED = ("ATTEMPT_BITS", "CONTAINER_BITS", "EPOCH_BITS")
SHIFTS = (8, 24, 32, 40)  # the same, and sums of them


def _packs(by: ast.expr) -> bool:
    """Return whether a shift by this is one of what ids pack."""
    name = getattr(by, "id", "") or getattr(by, "attr", "")
    return name in PACKED or (isinstance(by, ast.Constant) and by.value in SHIFTS)


@pytest.mark.slow
def test_ids_are_taken_apart_in_one_place() -> None:
    """`attempt >> ATTEMPT_BITS` is `app_of_attempt`: who reads it need not know the packing."""
    bare = [
        f"{source.name}:{node.lineno}"
        for source in figures.sources()
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
        for source in figures.sources()
        if source.is_kernel
        for name, function in source.functions()
        if figures.parameters(function) > figures.KERNEL_PARAMETERS_MAX
    ]
    assert not wide, f"more than {figures.KERNEL_PARAMETERS_MAX} parameters"


def test_pure_code_says_its_types() -> None:
    """`Any` is for tables of handlers and data still to be read (`weft.model.json_types`)."""
    pure = [source for source in figures.sources() if source.is_pure]
    found = {source.name: figures.anys(source) for source in pure if figures.anys(source)}
    assert sum(found.values()) < 150, found
