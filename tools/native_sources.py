"""What of the sources is written otherwise before they are compiled (`tools/make_native.py`).

It means the same: the compiler is told of what it cannot know, names that never change above all.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

CONSTANT = re.compile("_?[A-Z][A-Z0-9_]+")
ENUMS = ("Enum", "IntEnum", "StrEnum")
# Functions of these modules get names of their own, too.
PLAIN = ("bisect", "heapq", "itertools", "math")


def enums_of(folder: Path) -> set[str]:
    """Return the names of all enums in the packages of a folder."""
    trees = (ast.parse(path.read_text()) for path in folder.rglob("*.py"))
    return {
        one.name
        for tree in trees
        for one in tree.body
        if isinstance(one, ast.ClassDef) and any(ast.unparse(base) in ENUMS for base in one.bases)
    }


def fix_constants(path: Path, enums: set[str]) -> None:
    """Tell the compiler that constants never change; have frozen classes be plain.

    It then writes numbers and texts in where they are used; else each use looks the name up in the
    module. A class with slots would be another one than the one that was compiled, and a frozen one
    that is compiled cannot be unpickled.
    """
    text = path.read_text()
    tree, lines = ast.parse(text), text.splitlines()
    inserted = keep_values(tree, lines, enums)
    for made in tree.body:
        if not isinstance(made, ast.Assign) or ast.unparse(made.value).startswith("TypeVar("):
            continue
        at, target = made.lineno - 1, made.targets[0]
        if isinstance(target, ast.Name):
            if CONSTANT.fullmatch(target.id) or _is_kernel(made.value):
                lines[at] = lines[at].replace(" =", ": Final_ =", 1)
        elif isinstance(target, ast.Tuple) and (values := _each_of(target, made.value)):
            names = [*target.elts, *made.targets[1:]]
            values += [ast.unparse(made.value)] * (len(made.targets) - 1)
            each = [f"{ast.unparse(n)}: Final_ = {v}" for n, v in zip(names, values, strict=True)]
            end = made.end_lineno or made.lineno
            # No line may move.
            lines[at:end] = ["; ".join(each), *[""] * (end - made.lineno)]
    for at, line in sorted(inserted, reverse=True):
        lines.insert(at, line)
    first = next(n for n, line in enumerate(lines) if line.startswith(("import ", "from ")))
    lines.insert(first, "from typing import Final as Final_")
    plain = "\n".join(lines).replace("(frozen=True, slots=True)", "(unsafe_hash=True)")
    path.write_text(plain + "\n")


def _is_kernel(value: ast.expr) -> bool:
    """Return whether a value is a kernel as Python calls it (`weft.policies.compiled.steady`)."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "steady"


def _each_of(target: ast.Tuple, value: ast.expr) -> list[str]:
    """Return what each of several names is, where all of them are constants or kernels."""
    if ast.unparse(value).startswith("range("):
        return [str(n) for n in range(len(target.elts))]
    if not isinstance(value, ast.Tuple):
        return []
    fixed = all(isinstance(one, ast.Constant) or _is_kernel(one) for one in value.elts)
    return [ast.unparse(one) for one in value.elts] if fixed else []


def keep_values(tree: ast.Module, lines: list[str], enums: set[str]) -> list[tuple[int, str]]:
    """Have functions take members of enums, and functions of `PLAIN`, from names of their own.

    A member's look-up goes through the class of its class, which takes hundreds of instructions.
    Return the lines that give those names, each with the place where it has to be inserted.
    """
    # The line from which on each name that may be kept is there.
    known: dict[str, int] = {}
    imports = [one for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom)]
    after = max((one.end_lineno or 0 for one in imports), default=0)
    for one in imports:
        if isinstance(one, ast.ImportFrom):
            names = {name.asname or name.name for name in one.names}
            known |= dict.fromkeys(names if one.module in PLAIN else names & enums, after)
    for made in tree.body:
        if isinstance(made, ast.ClassDef) and made.name in enums:
            known[made.name] = made.end_lineno or 0
    edits: dict[int, dict[tuple[int, int], str]] = defaultdict(dict)
    inserted: set[tuple[int, str]] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in _looked_up(function, known, enums):
                text = ast.unparse(node)
                name = f"_{text.replace('.', '_')}_"
                edits[node.lineno - 1][node.col_offset, node.end_col_offset or 0] = name
                inserted.add((known[text.partition(".")[0]], f"{name}: Final_ = {text}"))
    for at, found in edits.items():
        for (start, end), name in sorted(found.items(), reverse=True):
            lines[at] = lines[at][:start] + name + lines[at][end:]
    return list(inserted)


def _looked_up(
    function: ast.FunctionDef, known: dict[str, int], enums: set[str]
) -> list[ast.Name | ast.Attribute]:
    """Return where a function takes what may be kept: members of enums, and plain functions."""
    inside = [node for line in function.body for node in ast.walk(line)]
    patterns = {id(node.value) for node in inside if isinstance(node, ast.MatchValue)}
    found: list[ast.Name | ast.Attribute] = []
    for node in inside:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            of_enum = node.value.id in known and node.value.id in enums
            if of_enum and CONSTANT.fullmatch(node.attr) and id(node) not in patterns:
                found.append(node)
        elif isinstance(node, ast.Name) and node.id in known and node.id not in enums:
            found.append(node)
    return found


def write_out_records(path: Path) -> None:
    """Give the records and slotted classes of a module an `__init__` that can be compiled.

    The one that `dataclass` makes at run time stays interpreted, which makes a record ten times as
    slow to make as one of a class whose `__init__` is compiled with it.
    """
    tree = ast.parse(path.read_text())
    kinds = {"record": "dataclass(init=False, unsafe_hash=True)", "slotted": ""}
    records = [
        (one, kinds[how])
        for one in tree.body
        if isinstance(one, ast.ClassDef)
        for how in map(ast.unparse, one.decorator_list)
        if how in kinds
    ]
    if not records:
        return
    # The import comes after the module's docstring.
    tree.body.insert(1, ast.parse("from dataclasses import dataclass").body[0])
    for made, instead in records:
        made.decorator_list = [ast.parse(instead, mode="eval").body] if instead else []
        fields = [one for one in made.body if isinstance(one, ast.AnnAssign)]
        parameters = ["self", *map(ast.unparse, fields)]
        for field in fields:
            field.value = None
        names = [ast.unparse(field.target) for field in fields]
        body = "; ".join(f"self.{name} = {name}" for name in names) or "pass"
        made.body += ast.parse(f"def __init__({', '.join(parameters)}) -> None: {body}").body
    path.write_text(ast.unparse(tree))
