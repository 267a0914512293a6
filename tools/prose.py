"""Look for words that Weft's texts do without: in docs, `--help`, errors and pages of the web.

    make check
    python -m tools.prose [FILE ...]

tools/words.toml has the list; CONTRIBUTING.md ("How to write") says why, with examples. proselint
(https://github.com/amperser/proselint) looks for them. Code in documents is left out.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from proselint.registry.checks import Check, types

ROOT = Path(__file__).resolve().parents[1]
WORDS = ROOT / "tools" / "words.toml"
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
FOLDERS = ("docs", "changes")
# In these packages every message is looked at: `--help`, errors, log lines, help of metrics.
MESSAGES = ("weft", "rm", "am", "nm", "sim", "lab")
# Here docstrings are, too. Those of other folders still have words of the list.
DOCSTRINGS = ("am/", "nm/", "sim/", "lab/cli.py", "lab/commands/", "weft/client/")
SCRIPTS = ("weft/web/static",)
# Pages made from kept rows, whose labels are part of them.
LEFT_OUT = ("docs/papers/", "lab/papers/")
# What is code in a Markdown document: fenced blocks, comments, `words`, addresses of links.
_CODE = re.compile(
    r"^(```|~~~).*?^\1[^\n]*$|<!--.*?-->|`[^`\n]+`|\]\([^)\n]*\)", re.DOTALL | re.MULTILINE
)
_QUOTED = re.compile(r"""("(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`)""")


def checks() -> list[Check]:
    """Return the list as checks of proselint."""
    rules = tomllib.loads(WORDS.read_text())["rule"]
    return [
        Check(
            check_type=types.ExistenceSimple(pattern=rule["find"]),
            path=f"weft.{rule['code']}",
            message=f"{rule['code']}: write {rule['write']}",
        )
        for rule in rules
    ]


def texts(path: Path, source: str, docstrings: bool = True) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file that people read, each with the line on which it begins."""
    if path.suffix == ".md":
        yield 1, _CODE.sub(_blank, source)
    elif path.suffix == ".py":
        yield from _strings(ast.parse(source), docstrings)
    else:
        for found in _QUOTED.finditer(source):
            # What stands between ${ and } is code.
            words = re.sub(r"\$\{[^{}]*\}", _blank, found[1])
            if " " in words:
                yield source.count("\n", 0, found.start()) + 1, words


def _strings(tree: ast.Module, docstrings: bool) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module that may be sentences; the help of a command is a message."""
    left_out = {
        id(node.value)
        for owner in ast.walk(tree)
        if isinstance(owner, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not _is_command(owner)
        for node in owner.body
        if isinstance(node, ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if " " in node.value and (docstrings or id(node) not in left_out):
            yield node.lineno, re.sub(r"`[^`\n]+`", _blank, node.value)


def _is_command(node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any("command" in ast.unparse(decorator) for decorator in decorators)


def _blank(found: re.Match[str]) -> str:
    """Return as many characters on as many lines that say nothing."""
    return re.sub(r"[^\n]", "_", found[0])


def findings(path: Path, source: str) -> list[str]:
    """Return a line for each word of the list in a file: where, what, what to write."""
    found = []
    rules = checks()
    docstrings = not str(path).startswith(MESSAGES) or (
        str(path).startswith(DOCSTRINGS) and not path.stem.endswith("_kernels")
    )
    for begins, text in texts(path, source, docstrings):
        # A sentence goes over line ends; proselint counts characters, so their number stays.
        flat = f" {text} ".replace("\n", " ")
        for rule in rules:
            for result in rule.check_with_flags(flat):
                at = max(result.span[0] - 1, 0)
                line = begins + text.count("\n", 0, at)
                around = " ".join(flat[max(at - 40, 0) : result.span[1] + 40].split())
                found.append((line, f"{result.message} (... {around} ...)"))
    return [f"{path}:{line}: {words}" for line, words in sorted(set(found))]


def files() -> list[Path]:
    """Return all files that follow the list, from the root of the repository."""
    found = [ROOT / name for name in DOCUMENTS]
    found += (path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))
    found += (path for name in MESSAGES for path in (ROOT / name).rglob("*.py"))
    found += (path for name in SCRIPTS for path in (ROOT / name).rglob("*.js"))
    relative = sorted(path.relative_to(ROOT) for path in found)
    return [
        path for path in relative if not str(path).startswith(LEFT_OUT) and "_pb2" not in path.name
    ]


def main(arguments: Sequence[str]) -> int:
    """Print what is found; returns 1 where something is."""
    chosen = [Path(name) for name in arguments] or files()
    found = [line for path in chosen for line in findings(path, (ROOT / path).read_text())]
    print("\n".join(found), file=sys.stderr) if found else None
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
