"""The clusters that live tests run on."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from testkit import forked
from testkit.live import Cluster
from weft.client.local import LocalCluster


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


@pytest.fixture(scope="session", autouse=True)
def _roles_are_forked() -> Iterator[None]:
    """Local clusters start their processes as `testkit.forked` says, unless they say how."""
    usual, runner = LocalCluster._begin, LocalCluster.runner

    def begin(self: LocalCluster, module: str, flags: list[str], output: IO[bytes]) -> Any:
        if self.runner is not runner:
            return usual(self, module, flags, output)
        told = os.environ | {"PYTHONUNBUFFERED": "1"}
        return forked.start(
            module, flags, stdout=output, stderr=output, session=True, environment=told
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalCluster, "_begin", begin)
        yield
