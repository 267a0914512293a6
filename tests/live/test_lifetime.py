"""A lifetime ends an application, given at the command line or by REST, and REST tells of it."""

import json
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lab.cli import weft
from testkit.live import Cluster, wait_for_nodes
from weft.client.api import Client


def rest(address: str, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> Any:
    """A call of YARN's REST API."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://{address}/ws/v1/cluster/{path}",
        data,
        {"Content-Type": "application/json"},
        method=method if data else "GET",
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else {}


def test_applications_are_killed_when_their_lifetime_is_over(
    cluster: Cluster, tmp_path: Path
) -> None:
    manager = cluster.manager()
    host = cluster.host(manager)
    cluster.nodes(manager, f"--am-host={host.address}", "--cluster=1x4vcores,8192memory_mb")
    web = cluster.start("weft.web", f"--manager={manager.address}")
    file = tmp_path / "long.json"
    stage = {"name": "a", "tasks": 1, "duration_s": 600, "demand": {"vcores": 1, "memory_mb": 64}}
    file.write_text(json.dumps({"name": "long", "stages": [stage]}))
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
        line = ["submit", str(file), "--lifetime", "1.5", "--wait", "--rm", manager.address]
        ended = CliRunner().invoke(weft, line)
        assert ended.exit_code == 1
        why = "it exceeded its lifetime of 1.5 s after its submission"
        assert why in ended.output
        new = rest(web.address, "apps/new-application", {})["application-id"]
        timeouts = {"entry": [{"key": "LIFETIME", "value": 300}]}
        body = {
            "application-id": new,
            "application-timeouts": timeouts,
            "weft-job": {
                "name": "by rest",
                "stages": [stage],
            },
        }
        rest(web.address, "apps", body)
        (told,) = rest(web.address, f"apps/{new}/timeouts")["timeouts"]["timeout"]
        assert told["type"] == "LIFETIME"
        assert 200 < told["remainingTimeInSeconds"] <= 300
        assert told["expiryTime"].endswith("+0000")
        told["expiryTime"] = told["expiryTime"].replace("+0000", "+0100")  # an hour earlier
        put = {"timeout": {"type": "LIFETIME", "expiryTime": told["expiryTime"]}}
        with pytest.raises(urllib.error.HTTPError, match="400"):
            rest(web.address, f"apps/{new}/timeout", put, "PUT")
        soon = datetime.now(UTC) + timedelta(seconds=2)
        put["timeout"]["expiryTime"] = soon.isoformat(timespec="milliseconds")
        changed = rest(web.address, f"apps/{new}/timeout", put, "PUT")["timeout"]
        assert changed["remainingTimeInSeconds"] <= 2
        number = int(new.rpartition("_")[2])
        report = client.wait([number])[number]
        assert report.final_status == "KILLED"
        assert "exceeded its lifetime" in report.diagnostics


def test_a_lifetime_beyond_the_calendar_leaves_the_listing_to_others(
    cluster: Cluster, tmp_path: Path
) -> None:
    """No year after 9999 can be written: such an application is told with the last time."""
    manager = cluster.manager()
    web = cluster.start("weft.web", f"--manager={manager.address}")
    file = tmp_path / "long.json"
    stage = {"name": "a", "tasks": 1, "duration_s": 1}
    file.write_text(json.dumps({"name": "ages", "stages": [stage], "lifetime_s": 2**53 - 1}))
    line = ["submit", str(file), "--rm", manager.address]
    app = CliRunner().invoke(weft, line).output.strip()
    (listed,) = rest(web.address, "apps")["apps"]["app"]
    assert listed["id"] == app
    assert listed["timeouts"]["timeout"][0]["expiryTime"] == "9999-12-31T23:59:59.999+0000"
    with pytest.raises(urllib.error.HTTPError) as refused:
        rest(web.address, f"apps/{app}/queue", {"queue": "\ud800"}, "PUT")
    assert refused.value.code == 400, "half a surrogate pair is no text of the wire"
