"""The files in `changes/` are of kinds that a release knows, and its notes are made of them."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = [
    kind["directory"]
    for kind in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
]
FILES = [path for path in (ROOT / "changes").iterdir() if path.name != "README.md"]


def test_each_change_is_of_a_known_kind_and_says_something() -> None:
    for path in FILES:
        name, kind, suffix = path.name.rsplit(".", 2)
        assert kind in KINDS, path.name
        assert suffix == "md", path.name
        assert name.startswith("+"), f"{path.name}: a change without an issue begins with +"
        assert path.read_text().rstrip().endswith("."), path.name


def test_a_release_puts_a_change_under_its_kind(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "+fast.added.md").write_text("A faster path.\n")
    towncrier = Path(sys.executable).parent / "towncrier"
    subprocess.run(
        [towncrier, "build", "--yes", "--version", "9.9.9"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    notes = (tmp_path / "CHANGELOG.md").read_text()
    assert "## [9.9.9]" in notes
    assert notes.index("### Added\n\n- A faster path.") > notes.index("## [9.9.9]")
    assert notes.index("## [9.9.9]") < notes.index("## [1.0.0]")
