"""The cluster that live tests run on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.live import Cluster


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster; a parameter says how its processes begin (`testkit.forked`)."""
    made = Cluster(tmp_path)
    made.begin = getattr(request, "param", made.begin)
    try:
        yield made
        for part in made.parts:
            assert "Traceback" not in part.log.read_text(), part.log.read_text()
    finally:
        made.close()
