"""The version and the Pythons are the same wherever they are written."""

import re
import tomllib
from pathlib import Path

from click.testing import CliRunner

from lab.cli import weft

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_the_same_everywhere() -> None:
    version = PROJECT["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"ARG WEFT_VERSION={version}\n" in (ROOT / "deploy" / "Dockerfile").read_text()


def test_the_pythons_of_the_package_are_those_of_the_docs() -> None:
    named = [row.rpartition(" ")[2] for row in PROJECT["classifiers"] if ":: Python ::" in row]
    rows = re.findall(r"^\| (3\.\d+) \| (.*) \|$", (ROOT / "docs/versions.md").read_text(), re.M)
    assert named == [python for python, said in rows if "not supported" not in said]


def test_the_command_tells_what_is_stable() -> None:
    told = CliRunner().invoke(weft, ["--version"]).output
    assert re.match(r"weft, version \S+ \(Python 3\.\d+", told)
    for part in ("job and cluster files", "--json", "metrics", "client.proto", "tape"):
        assert part in told
