"""The house rules that no linter knows hold in every file."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tracked(pattern: str) -> list[Path]:
    """Files under version control (or about to be) that match a pattern."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return [ROOT / name for name in listed if (ROOT / name).exists()]


SOURCES = [p for p in tracked("*.py") if "_pb2" not in p.name and "tests" not in p.parts]


def test_no_test_folder_is_a_package() -> None:
    """Tests are found by path, so two files may share a name."""
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_module_says_what_it_is(path: Path) -> None:
    """Each module begins with a docstring."""
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


TOP = {
    ".ci",
    ".dockerignore",
    ".editorconfig",
    ".github",
    ".gitignore",
    ".importlinter",
    ".pre-commit-config.yaml",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "am",
    "constraints.txt",
    "changes",
    "deploy",
    "docker-compose.yml",
    "docs",
    "lab",
    "mkdocs.yml",
    "nm",
    "proto",
    "pyproject.toml",
    "rm",
    "sim",
    "testkit",
    "tests",
    "tools",
    "weft",
}


def test_nothing_strange_lies_at_the_top() -> None:
    """A download or a run's output that is committed by accident is seen."""
    found = {path.relative_to(ROOT).parts[0] for path in tracked("*")}
    assert found <= TOP, f"not part of the layout: {sorted(found - TOP)}"


def test_no_module_is_named_after_the_standard_library() -> None:
    """A module named `queue` or `trace` would shadow the library's for scripts beside it."""
    import sys

    top = {p.stem for p in SOURCES if p.parent == ROOT} | {"weft", "rm", "am", "nm", "sim", "lab"}
    assert not top & set(sys.stdlib_module_names)


def test_the_chosen_libraries_are_in_use() -> None:
    """A dependency that nothing imports is a dependency too many."""
    text = "\n".join(p.read_text() for p in SOURCES)
    for module in (
        "grpc",
        "google.protobuf",
        "networkx",
        "numpy",
        "prometheus_client",
        "structlog",
    ):
        assert f"import {module}" in text or f"from {module}" in text, f"{module} is not used"


def test_files_that_the_docs_name_are_there() -> None:
    """A file that moved is looked for in vain by whoever reads where it was."""
    roots = ("weft/", "rm/", "am/", "nm/", "sim/", "lab/", "tools/", "tests/", "testkit/", "proto/")
    gone = []
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        if page.name == "CHANGELOG.md":
            continue
        for word in re.findall(r"`([^`\s*<]+\.(?:py|md|proto|json|txt|yaml))\b", page.read_text()):
            if word.startswith(roots) and not (ROOT / word).exists():
                gone.append(f"{page.name}: {word}")
    assert not gone
