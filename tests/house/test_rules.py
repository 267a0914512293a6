"""docs/rules.md is true: what it names exists, no line is missing, citations hold."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "rules.md").read_text()
RULES, *TABLES = re.split(r"^## (?=.*line by line)", TEXT, flags=re.MULTILINE)
LINES = {
    "Graphene, figure 13": 27,
    "Graphene, figure 14": 39,
    "Graphene, figure 15": 28,
    "Carbyne, pseudocode 1": 31,
    "COBRA, algorithm 1": 10,
    "COBRA, algorithm 2": 12,
}
ROWS = [line for line in TEXT.splitlines() if re.match(r"\| \d", line)]
NAMED = sorted(set(re.findall(r"`([\w/]+\.py):(\w+)`", TEXT)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


@cache
def names_in(path: Path) -> frozenset[str]:
    """Functions, methods, classes and constants of a file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return frozenset(found)


@pytest.mark.parametrize(("path", "name"), [*NAMED, *TESTS], ids=str)
def test_what_is_named_exists(path: str, name: str) -> None:
    assert (ROOT / path).is_file(), path
    assert name in names_in(ROOT / path), f"{path} has no {name}"


def test_every_row_names_code_and_a_test() -> None:
    for row in ROWS:
        _, _, _, code, tests, _ = re.split(r"(?<!\\)\|", row)
        assert re.search(r"`[\w/]+\.py:\w+`", code), row
        assert re.search(r"`tests/[\w/]+\.py::test_\w+`", tests), row


def test_rules_are_numbered_without_a_gap() -> None:
    numbers = [int(n) for n in re.findall(r"^\| (\d+) \|", RULES, flags=re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_line_of_the_pseudocode_is_mapped_once() -> None:
    seen = {}
    for table in TABLES:
        name = next(n for n in LINES if table.startswith(n))
        covered = []
        for low, high in re.findall(r"^\| (\d+)(?:-(\d+))? \|", table, flags=re.MULTILINE):
            covered += range(int(low), int(high or low) + 1)
        seen[name] = covered
    assert seen == {name: list(range(1, count + 1)) for name, count in LINES.items()}


def test_citations_are_of_rules_that_exist() -> None:
    """In the code and in the tables: "rule 12", "rules 3, 4", "rules 5 to 9"."""
    last = len(re.findall(r"^\| \d+ \|", RULES, flags=re.MULTILINE))
    places = [TEXT]
    for folder in ("rm", "am", "nm", "weft", "sim", "lab", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            if path != Path(__file__) and "docs/rules.md" in text:
                places.append(text)
    cited: set[int] = set()
    for text in places:
        flat = re.sub(r"\s+#?\s*", " ", text)
        for group in re.findall(r"\brules? (\d+(?:(?:, | to | and )\d+)*)", flat):
            cited.update(int(n) for n in re.findall(r"\d+", group))
    assert cited
    assert max(cited) <= last
    assert min(cited) >= 1
