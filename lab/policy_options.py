"""The options of `lab.policy_tests`, which pytest knows by `-p lab.policy_options`."""

from typing import Any


def pytest_addoption(parser: Any) -> None:
    """Add `--weft-matcher` and the like."""
    group = parser.getgroup("weft", "policies of Weft, for pytest --pyargs lab.policy_tests")
    for kind in ("matcher", "planner", "asker", "importer"):
        group.addoption(
            f"--weft-{kind}",
            action="append",
            metavar="NAME",
            help=f"a {kind} to test: an entry point's name, or module:attribute",
        )
    group.addoption(
        "--weft-source", action="append", metavar="FILE", help="a file that the importer reads"
    )
    group.addoption(
        "--weft-seeds", type=int, default=8, metavar="N", help="how many random runs a test makes"
    )


def pytest_configure(config: Any) -> None:
    """Say why tests are skipped: of the kinds of policies that are not named."""
    if "s" not in config.option.reportchars:
        config.option.reportchars += "s"
