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
# Python code whose docstrings and messages follow the list. CONTRIBUTING.md says which do not yet.
CODE = ("lab/cli.py",)
PAGES = ("weft/web/static",)
# Written by commands from kept rows, and measured, not told.
MADE = ("docs/papers/", "docs/settings.md", "docs/yarn-properties.md", "docs/lifecycles.md")
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


def texts(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file that people read, each with the line on which it begins."""
    if path.suffix == ".md":
        yield 1, _CODE.sub(_blank, source)
    elif path.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield node.lineno, node.value
    else:
        for found in _QUOTED.finditer(source):
            if " " in found[1]:
                yield source.count("\n", 0, found.start()) + 1, found[1]


def _blank(found: re.Match[str]) -> str:
    """Return as many characters on as many lines that say nothing."""
    return re.sub(r"[^\n]", "_", found[0])


def findings(path: Path, source: str) -> list[str]:
    """Return a line for each word of the list in a file: where, what, what to write."""
    found = []
    rules = checks()
    for begins, text in texts(path, source):
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
    """Return all files that follow the list."""
    named = [
        ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
    ]
    docs = [
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if not str(page.relative_to(ROOT)).startswith(MADE)
    ]
    code = [path for name in CODE for path in sorted(ROOT.glob(name))]
    pages = [path for name in PAGES for path in sorted((ROOT / name).rglob("*.js"))]
    return [*named, *docs, *code, *pages]


def main(arguments: Sequence[str]) -> int:
    """Print what is found; returns 1 where something is."""
    chosen = [Path(name) for name in arguments] or [path.relative_to(ROOT) for path in files()]
    found = [line for path in chosen for line in findings(path, path.read_text())]
    print("\n".join(found), file=sys.stderr) if found else None
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
