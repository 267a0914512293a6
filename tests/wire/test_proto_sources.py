"""The sources in proto/ compile for anybody as they lie, and our stubs are what they make."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_third_party_compiles_the_sources_as_they_lie(tmp_path: Path) -> None:
    sources = sorted(path.name for path in (ROOT / "proto").glob("*.proto"))
    assert "client.proto" in sources
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        "-I",
        "proto",
        f"--python_out={tmp_path}",
        f"--grpc_python_out={tmp_path}",
        *(f"proto/{name}" for name in sources),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    program = "import client_pb2_grpc as c; print(c.ResourceManagerClientStub.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "ResourceManagerClientStub", done.stderr
