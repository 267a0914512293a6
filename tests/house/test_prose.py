"""The words that `tools/words.toml` lists are found where people read them, and only there."""

from pathlib import Path

import pytest

from tools.prose import checks, findings

PLANTED = {
    "docs/planted.md": "# A page\n\nThe master is\ntold of lost nodes.\n",
    "rm/planted.py": 'raise ValueError(f"whoever holds {1} goes first")\n',
    "weft/web/static/planted.js": 'const title = "what came late";\n',
    "lab/commands/planted.py": '"""Say what was wrong. Of the draw."""\n',
}


@pytest.mark.parametrize("path", PLANTED)
def test_a_planted_sentence_is_found(path: str) -> None:
    (found,) = findings(Path(path), PLANTED[path])
    assert found.startswith(f"{path}:")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "docs/planted.md",
            "```sh\nweft submit told.yaml\n```\nThe field `told` counts. Of five, two ran.\n",
        ),
        ("rm/planted.py", 'told = {"told": 1}\nraise ValueError(f"{told}")\n'),
        ("weft/web/static/planted.js", "const text = `${told.name}: its tasks`;\n"),
    ],
)
def test_code_is_no_text(path: str, text: str) -> None:
    assert not findings(Path(path), text)


def test_each_rule_has_a_name_of_its_own() -> None:
    names = [rule.path for rule in checks()]
    assert len(set(names)) == len(names)
