"""The figures of the code: sizes, comments, imports of types; `make figures` prints them.

`tests/house` asks the same sources for what must not grow. Ruff holds the complexity of functions,
import-linter the walls and that nothing imports in a circle.
"""

import ast
import io
import re
import statistics
import subprocess
import tokenize
from collections.abc import Iterator
from configparser import ConfigParser
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("weft", "rm", "am", "nm", "sim", "lab")
KERNEL_PARAMETERS_MAX = 8

Function = ast.FunctionDef | ast.AsyncFunctionDef

# A comment that begins so is a label of the code beside it, not a sentence.
_FRAGMENT = re.compile(
    r"# (of|as|that|to|by|in|what|from|for|on|where|with|at|per|whose|which|who|until|when|since"
    r"|if|it|a|the|none|also|both|so)\b"
)


def _worldly() -> frozenset[str]:
    walls = ConfigParser()
    walls.read(ROOT / ".importlinter")
    return frozenset(walls["importlinter:contract:pure"]["worldly"].split())


WORLDLY = _worldly()


class Source(NamedTuple):
    """One file: its path from the checkout's root, its text, its tree."""

    name: str
    text: str
    tree: ast.Module

    @property
    def is_pure(self) -> bool:
        """Whether the contract `pure` of `.importlinter` holds it."""
        parts = self.name.removesuffix(".py").split("/")
        if parts[0] == "lab" or "process" in parts or parts[-1] == "__main__":
            return False
        return not any(".".join(parts[:end]) in WORLDLY for end in range(2, len(parts) + 1))

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


@cache
def sources(top: Path = ROOT) -> tuple[Source, ...]:
    """Return the product's own files: under version control or about to be, no generated stubs.

    They are read once a process.
    """
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
    return tuple(found)


def length(function: Function) -> int:
    """Count lines from `def` to the end."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def parameters(function: Function) -> int:
    """Count parameters without `self` and `cls`."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return len([arg for arg in every if arg.arg not in ("self", "cls")])


def anys(source: Source) -> int:
    """Count how often `Any` is used as a type (its import does not count)."""
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(source.tree))


def comments(source: Source) -> list[tuple[str, bool]]:
    """Return each comment with whether it trails code; those for tools do not count."""
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    return [
        (token.string, not token.line.lstrip().startswith("#"))
        for token in tokens
        if token.type == tokenize.COMMENT and not re.match(r"# (fmt|type|noqa|--)", token.string)
    ]


def main() -> None:
    """Print the figures."""
    every = sources()
    print(f"production: {sum(source.lines for source in every)} lines in {len(every)} files")
    sizes = sorted(length(function) for source in every for _, function in source.functions())
    median, p90 = statistics.median(sizes), sizes[int(len(sizes) * 0.9)]
    print(f"functions: {len(sizes)}, lines median {median:.0f}, p90 {p90}, longest {sizes[-1]}")
    said = [comment for source in every for comment in comments(source)]
    trailing = sum(trails for _, trails in said) / len(said)
    fragments = sum(bool(_FRAGMENT.match(text)) for text, _ in said) / len(said)
    print(f"comments: {len(said)}, trailing {trailing:.0%}, fragments {fragments:.0%}")
    print(f"Any as a type in pure code: {sum(anys(source) for source in every if source.is_pure)}")
    rows = (ROOT / "docs" / "settings.md").read_text().splitlines()
    print(f"settings: {sum(row.startswith('| `') for row in rows)} rows")


if __name__ == "__main__":
    main()
