"""Strangers where there are no certificates: who speaks for another is refused and counted."""

import asyncio
import json
import os
import re
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from testkit import forked
from testkit.live import Cluster, chain, until, wait_for_nodes
from weft.client.api import Client
from weft.protocol.messages import (
    NO_TOKEN,
    AttemptFinished,
    ContainerEnd,
    ContainersAsked,
    MasterLaunch,
    NodeHeartbeated,
    NodeRegistered,
    NodeUnregistered,
    Outcome,
    StartContainers,
    StopContainers,
    TaskLaunch,
)
from weft.wire import channel, codec
from weft.wire.containers_pb2_grpc import ContainerManagerStub
from weft.wire.host_pb2_grpc import MasterHostStub
from weft.wire.master_pb2_grpc import ApplicationMasterProtocolStub
from weft.wire.tokens import FIRST_MAX, KEYS_MAX, Keys, Kind, Shown
from weft.wire.tracker_pb2_grpc import NodeTrackerStub

NODE = "--cluster=1x8vcores,16384memory_mb"


def refusals(address: str) -> dict[str, float]:
    """Refused messages of a process, by type and field."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(
        r'weft_messages_refused_total\{message="(\w+)",field="(\w*)"\} ([\d.]+)', text
    )
    return {f"{message}.{field}": float(number) for message, field, number in found}


def say(address: str, stub: Any, encode: Any, *messages: Any) -> None:
    """Say something on a stream of one's own and be sure that it was heard."""

    async def main() -> None:
        dialled = channel.dial(address)
        service = stub(dialled)
        call = service.Track() if stub is NodeTrackerStub else service.Allocate()
        await call.write(encode(messages))
        await asyncio.sleep(0.3)
        call.cancel()
        await dialled.close()

    asyncio.run(main())


@pytest.fixture
def busy(cluster: Cluster) -> Iterator[tuple[Cluster, Client, int]]:
    """Two nodes, and an application whose only task runs for as long as anybody looks."""
    manager = cluster.manager(f"--state-dir={cluster.folder / 'state'}")
    host = cluster.host(manager)
    cluster.nodes(manager, f"--am-host={host.address}", "--nodes=2", NODE)
    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        app = client.submit(chain("victim", 1, 1, 9_000.0))
        until(lambda: client.application(app).running_containers == 2, "its task runs")
        yield cluster, client, app


def state(client: Client, app: int) -> tuple[Any, ...]:
    report = client.application(app)
    nodes = [(node.node_id, node.state, node.address, node.containers) for node in client.nodes()]
    return report.state, report.attempt_id, report.finished_tasks, report.running_containers, nodes


def test_nobody_speaks_for_another(busy: tuple[Cluster, Client, int]) -> None:
    cluster, client, app = busy
    manager, nodes = cluster.parts[0], cluster.parts[2]
    before = state(client, app)
    attempt = client.application(app).attempt_id
    task = next(one for one in client.tasks(app))
    capacity = {"vcores": 8.0, "memory_mb": 16384.0}
    taken = NodeRegistered(task.node_id, "127.0.0.1:9", "r1", (), capacity, boot=77)
    done = ContainerEnd(task.container_id, Outcome.SUCCEEDED, 0, 0, 0, 0, 1.0)
    encode = codec.encode_node_reports
    say(manager.address, NodeTrackerStub, encode, taken)
    beat = NodeHeartbeated(task.node_id, 2**40, ended=(done,))
    say(manager.address, NodeTrackerStub, encode, beat, NodeUnregistered(task.node_id))
    speak = codec.encode_master_reports
    asked = ContainersAsked(attempt, 10**9, releases=(task.container_id,), epoch=0)
    finished = AttemptFinished(attempt, True, "done by a stranger")
    say(manager.address, ApplicationMasterProtocolStub, speak, asked, finished)

    async def order(message: Any) -> Any:
        dialled = channel.dial(nodes.address)
        stub = ContainerManagerStub(dialled)
        if isinstance(message, StartContainers):
            got = await stub.StartContainers(codec.encode_starts("me", [message]), timeout=20)
        else:
            got = await stub.StopContainers(codec.encode_containers("me", [message]), timeout=20)
        await dialled.close()
        return codec.decode_answers(got)[0].items[0]

    launch = TaskLaunch(attempt << 32 | 999, 0, 0, 0, 1.0, (1.0, 1.0), ("touch", "/tmp/never"))
    start = asyncio.run(order(StartContainers(attempt, task.node_id, (launch,))))
    assert start.error == f"{NO_TOKEN}: no token of container {attempt << 32 | 999} was shown"
    stop = asyncio.run(order(StopContainers(attempt, task.node_id, (task.container_id,))))
    assert stop.error.startswith(f"{NO_TOKEN}: no token of container")
    assert state(client, app) == before
    found = refusals(manager.ready["metrics"])
    assert {
        "NodeRegistered.node_id",
        "NodeHeartbeated.node_id",
        "NodeUnregistered.node_id",
        "ContainersAsked.attempt_id",
        "AttemptFinished.attempt_id",
    } <= set(found)
    assert {"StartContainers.token", "StopContainers.token"} <= set(
        refusals(nodes.ready["metrics"])
    )
    assert client.kill(app) in ("KILLING", "KILLED")
    until(lambda: client.application(app).state == "KILLED", "the rightful parts go on")


def test_true_tokens_of_others_and_of_other_times_let_nobody_speak_for_a_victim(
    busy: tuple[Cluster, Client, int],
) -> None:
    """Each is signed by the manager's own keys, or by another cluster's, and is shown again."""
    cluster, client, victim = busy
    manager, nodes = cluster.parts[0], cluster.parts[2]
    beside = client.submit(chain("beside", 1, 1, 9_000.0))
    until(lambda: client.application(beside).running_containers == 2, "it runs")
    attempt, other = (client.application(app).attempt_id for app in (victim, beside))
    task, others = next(iter(client.tasks(victim))), next(iter(client.tasks(beside)))
    now_s = time.time()
    saved = json.loads((cluster.folder / "state" / "keys.json").read_text())
    keys = Keys(now_s, os.urandom, saved=saved)
    elsewhere = Keys(now_s, os.urandom)
    numbered = {"keys": [one | {"secret": os.urandom(32).hex()} for one in saved["keys"]]}
    same_number = Keys(now_s, os.urandom, saved=numbered)
    before = [state(client, app) for app in (victim, beside)]
    long_ago_s = now_s - 2 * keys.lasts_s()
    untrue = {
        "of another application": keys.attempt(other, now_s),
        "expired": keys.attempt(attempt, long_ago_s),
        "of another cluster": elsewhere.attempt(attempt, now_s),
        "of another cluster whose key has that number": same_number.attempt(attempt, now_s),
        "of a node": keys.node(task.node_id, now_s),
        "of a container": keys.container(task.container_id, task.node_id, now_s),
    }
    speak = codec.encode_master_reports
    asked = ContainersAsked(attempt, 10**9, releases=(task.container_id,), epoch=0)
    finished = AttemptFinished(attempt, True, "done by a stranger")
    for token in untrue.values():
        stranger = (Shown((token,)), asked, finished)
        say(manager.address, ApplicationMasterProtocolStub, speak, *stranger)
    refused = refusals(manager.ready["metrics"])
    assert refused["AttemptFinished.attempt_id"] == len(untrue)
    done = ContainerEnd(task.container_id, Outcome.SUCCEEDED, 0, 0, 0, 0, 1.0)
    beat = NodeHeartbeated(task.node_id, 2**40, ended=(done,))
    another = next(node.node_id for node in client.nodes() if node.node_id != task.node_id)
    wrong = [keys.node("n99", now_s), keys.node(task.node_id, long_ago_s)]
    wrong += [elsewhere.node(task.node_id, now_s), keys.attempt(attempt, now_s)]
    for token in wrong:
        say(manager.address, NodeTrackerStub, codec.encode_node_reports, Shown((token,)), beat)
    assert refusals(manager.ready["metrics"])["NodeHeartbeated.node_id"] == len(wrong)

    async def stop(token: bytes, who: int) -> str:
        dialled = channel.dial(nodes.address)
        message = StopContainers(who, task.node_id, (task.container_id,))
        request = codec.encode_containers("me", [message], tokens=lambda _: [token])
        got = await ContainerManagerStub(dialled).StopContainers(request, timeout=20)
        await dialled.close()
        return str(codec.decode_answers(got)[0].items[0].error)

    handed = keys.container(task.container_id, task.node_id, now_s, attempt=other)
    for token in (
        keys.container(others.container_id, others.node_id, now_s),
        keys.container(task.container_id, another, now_s),
        elsewhere.container(task.container_id, task.node_id, now_s),
        keys.container(task.container_id, task.node_id, now_s, Kind.LOG),
        keys.attempt(attempt, now_s),
    ):
        assert asyncio.run(stop(token, attempt)).startswith(NO_TOKEN)
    assert asyncio.run(stop(handed, attempt)).startswith(NO_TOKEN), "it was given to another"
    assert [state(client, app) for app in (victim, beside)] == before
    # The rightful ones do, so all of the above was understood.
    true = keys.attempt(attempt, now_s)
    say(manager.address, ApplicationMasterProtocolStub, speak, Shown((true,)), finished)
    until(lambda: client.application(victim).state == "FINISHED", "its own token counts")
    client.kill(beside)


def test_nobody_starts_or_kills_anothers_master(busy: tuple[Cluster, Client, int]) -> None:
    cluster, client, app = busy
    host = cluster.parts[1]
    before = state(client, app)
    attempt = client.application(app).attempt_id
    master = next(one for one in client.containers(app) if not one.stage)
    launch = MasterLaunch(master.container_id, attempt, (1.0, 1.0))

    async def order() -> None:
        dialled = channel.dial(host.address)
        call = MasterHostStub(dialled).HostMasters()
        await call.write(codec.encode_launches([launch], [], [b"nonsense"]))
        await call.write(codec.encode_launches([], [master.container_id]))
        await asyncio.sleep(0.3)
        call.cancel()
        await dialled.close()

    asyncio.run(order())
    until(
        lambda: (
            {"MasterLaunch.attempt_id", "KillMaster.container_id"}
            <= set(refusals(host.ready["metrics"]))
        ),
        "both are refused",
        20,
    )
    assert state(client, app) == before
    client.kill(app)


def test_a_node_that_was_killed_is_followed_by_another_process(cluster: Cluster) -> None:
    """Its name is free with its stream, though nobody has its token any more."""
    manager = cluster.manager()
    host = cluster.host(manager)
    first = cluster.nodes(manager, f"--am-host={host.address}", "--nodes=2", NODE)
    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        first.kill()
        cluster.nodes(manager, f"--am-host={host.address}", "--nodes=2", NODE)
        app = client.submit(chain("after", 2, 4, 0.05))
        assert client.wait([app])[app].final_status == "SUCCEEDED"


def test_keys_change_under_load_and_over_a_restart_and_nothing_is_refused(
    cluster: Cluster,
) -> None:
    """A new key every few seconds; the manager is killed once; every job ends well."""
    flags = (f"--state-dir={cluster.folder / 'state'}", "--token-key-s=4")
    manager = cluster.manager(*flags)
    host = cluster.host(manager)
    nodes = cluster.nodes(manager, f"--am-host={host.address}", "--nodes=2", NODE)
    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        jobs = [replace(chain(f"j{i}", 3, 8, 1.0), queue="default") for i in range(4)]
        apps = [client.submit(job) for job in jobs]
        until(lambda: "a new key" in manager.log.read_text(), "a key was made")
        before = refusals(manager.ready["metrics"])
        manager.kill()
        again = cluster.manager(*flags, f"--port={manager.address.rpartition(':')[2]}")
        ended = client.wait(apps)
        assert {one.final_status for one in ended.values()} == {"SUCCEEDED"}
        until(lambda: "a new key" in again.log.read_text(), "a key was made")
        assert before == refusals(again.ready["metrics"]) == {}
        assert refusals(nodes.ready["metrics"]) == {}


def test_after_the_keys_are_lost_new_jobs_run_on_the_nodes_that_stayed_up(
    cluster: Cluster,
) -> None:
    """They know as many keys as they keep, all of higher numbers than a new manager's first."""
    state = cluster.folder / "state"
    state.mkdir()
    now_s = time.time()
    keys = [
        {"number": FIRST_MAX + 10 + i, "from_s": now_s + i - KEYS_MAX, "secret": f"{i + 1:064x}"}
        for i in range(KEYS_MAX)
    ]
    (state / "keys.json").write_text(json.dumps({"keys": keys}))
    manager = cluster.manager(f"--state-dir={state}")
    host = cluster.host(manager)
    nodes = cluster.nodes(manager, f"--am-host={host.address}", "--nodes=2", NODE)
    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        app = client.submit(chain("before", 1, 2, 0.05))
        assert client.wait([app])[app].final_status == "SUCCEEDED"
        manager.kill()
        (state / "keys.json").unlink()
        cluster.manager(f"--state-dir={state}", f"--port={manager.address.rpartition(':')[2]}")
        wait_for_nodes(client, 2)
        app = client.submit(chain("after", 2, 4, 0.05))
        assert client.wait([app])[app].final_status == "SUCCEEDED"
        assert "StartContainers.token" not in refusals(nodes.ready["metrics"])


@pytest.mark.parametrize("cluster", [forked.run], indirect=True)  # with its own command line
def test_no_secret_is_where_others_read(busy: tuple[Cluster, Client, int]) -> None:
    cluster, client, app = busy
    folder = cluster.folder
    keys = folder / "state" / "keys.json"
    assert keys.stat().st_mode & 0o777 == 0o600
    secrets = re.findall(r'"secret": "(\w+)"', keys.read_text())
    assert secrets
    texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file() and path != keys]
    for part in cluster.parts:
        process = psutil.Process(part.process.pid)
        texts.append(" ".join(process.cmdline()).encode())
        texts.append(Path(f"/proc/{part.process.pid}/environ").read_bytes())
        with urllib.request.urlopen(f"http://{part.ready['metrics']}/metrics") as answer:
            texts.append(answer.read())
    for secret in secrets:
        assert not any(secret.encode() in text or bytes.fromhex(secret) in text for text in texts)
    assert os.path.exists(keys)
    client.kill(app)
