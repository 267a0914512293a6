"""The figures of the code: sizes of functions and files, kernels' parameters, imports, words.

`make figures` prints them; `tests/house/test_figures.py` holds the ones that must not grow.
"""

import ast
import io
import statistics
import subprocess
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("weft", "rm", "am", "nm", "sim", "lab")
FACES = ("client", "hadoop", "live", "results", "tape", "web", "wire", "workloads")
FOLDERS = (
    "rm",
    "rm.match",
    "rm.placing",
    "rm.state",
    "am",
    "am.plan",
    "am.ask",
    "nm",
    "sim",
    "weft",
    "weft.wire",
    "lab",
)
PARAMETERS_MAX = 8  # of a kernel

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source(NamedTuple):
    """One file: its path from the checkout's root, its text, its tree."""

    name: str
    text: str
    tree: ast.Module

    @property
    def is_pure(self) -> bool:
        """Whether it is of a core or of the shared words: no process, no face."""
        parts = self.name.split("/")
        if parts[0] == "lab" or "process" in parts or parts[-1] == "__main__.py":
            return False
        return not (parts[0] == "weft" and parts[1] in FACES)

    @property
    def is_kernel(self) -> bool:
        """Whether its functions are compiled."""
        return self.name.endswith("_kernels.py")

    @property
    def lines(self) -> int:
        """Lines of the file."""
        return self.text.count("\n")

    def functions(self) -> Iterator[tuple[str, Function]]:
        """Yield every function and method with its dotted name."""
        yield from _functions(self.tree, "")


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}"
            if not isinstance(child, ast.ClassDef):
                yield name, child
            yield from _functions(child, f"{name}.")
        else:
            yield from _functions(child, prefix)


def sources(top: Path = ROOT) -> list[Source]:
    """Return the product's own files: under version control or about to be, no generated stubs."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PRODUCT],
        cwd=top,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    found = []
    for name in sorted(set(listed)):
        if name.endswith(".py") and "_pb2" not in name and (top / name).exists():
            text = (top / name).read_text()
            found.append(Source(name, text, ast.parse(text)))
    return found


def length(function: Function) -> int:
    """Count lines from `def` to the end."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def parameters(function: Function) -> int:
    """Count parameters without `self` and `cls`."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return len([arg for arg in every if arg.arg not in ("self", "cls")])


def said_lines(source: Source) -> int:
    """Count lines that are a comment or part of a docstring."""
    said = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT and "fmt:" not in token.string:
            said.add(token.start[0])
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                said.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(said)


def anys(source: Source) -> int:
    """Count how often `Any` is used as a type (its import does not count)."""
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(source.tree))


def imports(every: Iterable[Source]) -> dict[str, set[str]]:
    """Return for each module those of the product that it imports anywhere in its file, types too.

    What a command of the command line loads only when it is called does not count.
    """
    every = list(every)
    known = {module_of(source.name) for source in every}
    graph: dict[str, set[str]] = {}
    for source in every:
        found = set()
        late = source.name.startswith("lab/commands_")
        for node in source.tree.body if late else ast.walk(source.tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
                found.add(node.module)
        own = module_of(source.name)
        exact = {name for name in found if name in known}
        # `from a import b` is an import of `a.b` alone where that is a module.
        packages = {name for name in exact if any(other.startswith(f"{name}.") for other in exact)}
        graph[own] = exact - packages - {own}
    return graph


def module_of(name: str) -> str:
    """Return `rm.match.fifo` for `rm/match/fifo.py`; a package by its folder."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def rooms(graph: dict[str, set[str]], top: str) -> dict[str, set[str]]:
    """Return the graph of one folder: each file or folder directly below `top` is one room."""

    def room(module: str) -> str:
        return ".".join(module.split(".")[: top.count(".") + 2])

    below: dict[str, set[str]] = {}
    for module, targets in graph.items():
        if module.startswith(f"{top}."):
            here = room(module)
            inside = {room(other) for other in targets if other.startswith(f"{top}.")}
            below.setdefault(here, set()).update(inside - {here})
    return below


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return groups of modules that import each other in a circle (Tarjan, one list a circle)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            group, stack[at:] = stack[at:], []
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def main() -> None:
    """Print the figures."""
    every = sources()
    pure = [source for source in every if source.is_pure]
    lines, files = sum(source.lines for source in every), len(every)
    print(f"production lines {lines}, files {files}, {1000 * files / lines:.1f} per 1,000 lines")
    _print_functions(every)
    anys_by_file = sorted(((anys(s), s.name) for s in pure), reverse=True)
    print(f"Any in the pure set: {sum(map(anys, pure))}; in all {sum(map(anys, every))}")
    print(*(f"    {count} {name}" for count, name in anys_by_file[:10]), sep="\n")
    said, total = sum(map(said_lines, pure)), sum(source.lines for source in pure)
    print(f"pure: {total} lines, comments and docstrings {100 * said / total:.1f} %")
    print(f"fmt: skip: {sum(source.text.count('# fmt: skip') for source in every)}")
    print("files above 400 lines:")
    for count, name in sorted((s.lines, s.name) for s in every if s.lines > 400):
        print(f"    {count} {name}")
    graph = imports(every)
    print(f"circles: {circles(graph)}")
    for top in FOLDERS:
        below = rooms(graph, top)
        arrows = sum(map(len, below.values()))
        print(f"    {top}: rooms {len(below)}, arrows {arrows}, circles {circles(below)}")


def _print_functions(every: list[Source]) -> None:
    found = [(s, name, function) for s in every for name, function in s.functions()]
    lengths = sorted((length(function), f"{s.name}:{name}") for s, name, function in found)
    sizes = [size for size, _ in lengths]
    p90, p99 = sizes[int(len(sizes) * 0.9)], sizes[int(len(sizes) * 0.99)]
    median = statistics.median(sizes)
    print(f"functions {len(sizes)}: median {median:.0f}, p90 {p90}, p99 {p99}, max {sizes[-1]}")
    print(*(f"    {size} {name}" for size, name in lengths[-8:]), sep="\n")
    wide = sorted(
        (parameters(function), f"{s.name}:{name}")
        for s, name, function in found
        if parameters(function) > PARAMETERS_MAX
    )
    kernels = [row for row in wide if "_kernels.py" in row[1]]
    print(f"kernels with more than {PARAMETERS_MAX} parameters: {len(kernels)}")
    print(f"all functions with more than {PARAMETERS_MAX} parameters: {len(wide)}")
    print(*(f"    {count} {name}" for count, name in wide), sep="\n")


if __name__ == "__main__":
    main()
