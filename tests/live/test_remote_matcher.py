"""A matcher in another process, in Python and in JavaScript: simulated, live, and misbehaving."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from lab.learning.gym import synthetic
from rm.match.choice_kernels import FEATURES
from rm.match.choices import Choices
from rm.match.protocol import BaseMatcher
from rm.process.remote import REFUSED_PICKS_MAX
from sim.cluster import Simulation
from sim.recorder import Recorder
from sim.settings import SimSettings
from testkit.live import until
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.errors import InputError, PolicyError, WeftError
from weft.model.job import Job, Stage
from weft.policies.presets import choose, with_options
from weft.wire import matcher_pb2, matcher_pb2_grpc
from weft.wire.matching import ANSWER_BYTES_MAX, MatcherChannel, Offer, Offers
from weft.workloads.cluster_file import load_cluster

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples" / "remote"
NODE = ROOT / "build" / "node"  # npm's packages, kept between runs
CLUSTER = "2x16vcores,65536memory_mb,800disk_mbps,1250network_mbps"
REMAINING = FEATURES.index("remaining")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


class Shortest(BaseMatcher):
    """The examples' policy in this process."""

    name = "shortest"

    def match(self, view, node, now):
        choices = Choices(view, node, now)
        work = choices.features()[:, REMAINING]
        for chosen in sorted(np.flatnonzero(choices.open), key=lambda i: work[i]):
            choices.pick(int(chosen), 1 << 31)
        return choices.match()


def run(matcher: str, **options: str) -> Recorder:
    preset = choose(matcher=matcher)
    given = {f"matcher.{name}": value for name, value in options.items()}
    jobs = synthetic(np.random.default_rng(1), jobs=12, interarrival_s=2.0)
    settings = SimSettings(with_options(preset, given), prompt=True, checks=True, check_every=50)
    simulation = Simulation(load_cluster(CLUSTER), jobs, settings, Recorder())
    simulation.run()
    return simulation.recorder


@pytest.fixture(scope="module")
def here() -> str:
    sys.modules.setdefault("shortest_here", sys.modules[__name__])
    return run("shortest_here:Shortest").digest()


@contextmanager
def started(*command: object) -> Iterator[subprocess.Popen[str]]:
    """A matcher's process that says when it serves."""
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == "serving"
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python example beside stubs made from the protos as they lie."""
    folder = tmp_path_factory.mktemp("python")
    shutil.copy(EXAMPLES / "shortest.py", folder)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{ROOT / 'proto'}",
            f"--python_out={folder}",
            f"--grpc_python_out={folder}",
            "matcher.proto",
        ],
        check=True,
    )
    return folder / "shortest.py"


@pytest.fixture(scope="module")
def in_python(script: Path) -> Iterator[str]:
    port = free_port()
    with started(sys.executable, script, port):
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def in_javascript(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Node example; its two packages come from npm."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("no Node.js")
    if not (NODE / "node_modules" / "@grpc" / "proto-loader").is_dir():
        NODE.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                "npm",
                "install",
                "--silent",
                "--no-audit",
                "--no-fund",
                "--prefix",
                str(NODE),
                "@grpc/grpc-js@1",
                "@grpc/proto-loader@0.8",
            ],
            check=True,
        )
    script = NODE / "shortest.js"
    shutil.copy(EXAMPLES / "shortest.js", script)
    port = free_port()
    with started("node", script, ROOT / "proto" / "matcher.proto", port):
        yield f"127.0.0.1:{port}"


@pytest.mark.parametrize("language", ["in_python", "in_javascript"])
def test_it_decides_as_the_same_policy_does_in_the_process(language, here, request):
    address = request.getfixturevalue(language)
    assert run("remote", address=address, otherwise="fail", timeout_s="20").digest() == here


def test_thousands_of_decisions_a_second(in_python):
    """2,000 a second are asked for on a machine with nothing else to do: see docs/policies.md."""
    channel = MatcherChannel(in_python, 20.0)
    offer = Offer(1, 0, 0, 0, [1.0, 2.0], 3, 1.0, 0.5, 1.0, 1.0, 0.0, 1.0, 0)
    offers = Offers(1.0, "n", [8.0, 8.0], [8.0, 8.0], [80.0, 80.0], [offer] * 8)
    began = os.times()
    for _ in range(500):
        assert channel.match(offers) == [(i, 3) for i in range(8)]
    own = os.times().user + os.times().system - began.user - began.system
    assert 500 / own > 1000, "CPU of the asking side alone"
    channel.close()


class Stranger(matcher_pb2_grpc.MatcherServicer):
    """A matcher that answers whatever it is told to."""

    def __init__(self, picks):
        self.picks = picks
        self.asked = 0

    def Describe(self, setting, context):
        assert list(setting.resource)
        assert next(iter(setting.queue)) == "root"
        return matcher_pb2.MatcherDescription(name="stranger")

    def Match(self, question, context):
        self.asked += 1
        assert len(question.candidate) >= 1
        return matcher_pb2.MatchAnswer(
            pick=[matcher_pb2.MatchPick(candidate=i, copies=n) for i, n in self.picks]
        )


@contextmanager
def serving(servicer) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1))
    matcher_pb2_grpc.add_MatcherServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_answers_that_break_every_rule_harm_nobody():
    """Numbers that no candidate has, copies without bound, none at all; every checker is on."""
    most = 2**32 - 1
    wild = [(most, most), (0, 0), (77, 1), (0, most), (0, most), (1, most), (2, 1)]
    with serving(Stranger(wild)) as address:
        recorder = run("remote", address=address, otherwise="fail", timeout_s="20")
    assert {row.final_status for row in recorder.jobs} == {"SUCCEEDED"}


def _late(question, context):
    time.sleep(0.6)
    return b""


def _aborts(question, context):
    context.abort(grpc.StatusCode.INTERNAL, "x" * 500)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (_late, "Deadline Exceeded"),
        (_aborts, "xxx"),
        (lambda question, context: b"\xff" * 20, "."),
        (lambda question, context: bytes([10, 2, 8, 0]) * (ANSWER_BYTES_MAX // 4 + 1), "larger"),
    ],
    ids=["late", "aborts", "junk", "huge"],
)
def test_an_answer_that_is_none_is_as_no_answer(answer, says):
    """A study ends with it in one line; else asks are served in order, and it is left alone."""

    def described(question, context):
        return matcher_pb2.MatcherDescription(name="n" * 10_000).SerializeToString()

    handler = grpc.method_handlers_generic_handler(
        "weft.Matcher",
        {
            "Describe": grpc.unary_unary_rpc_method_handler(described),
            "Match": grpc.unary_unary_rpc_method_handler(answer),
        },
    )
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((handler,))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        with pytest.raises(PolicyError, match=says) as told:
            run("remote", address=address, otherwise="fail", timeout_s="0.3")
        assert "\n" not in str(told.value)
        recorder = run("remote", address=address, timeout_s="0.3")
        assert {row.final_status for row in recorder.jobs} == {"SUCCEEDED"}
    finally:
        server.stop(None).wait()


def test_an_answer_of_many_picks_that_break_rules_holds_nobody_up(monkeypatch):
    """Half a million of them would take a second each time, in which the manager does no more."""
    asked = []
    pick = Choices.pick
    monkeypatch.setattr(Choices, "pick", lambda *given: (asked.append(1), pick(*given))[1])
    stranger = Stranger([(i, 2**31) for i in range(100)] + [(0, 1)] * 5_000)
    with serving(stranger) as address:
        run("remote", address=address, otherwise="fail", timeout_s="20")
    assert 0 < len(asked) <= (100 + REFUSED_PICKS_MAX) * stranger.asked


def test_a_study_ends_where_nobody_answers(monkeypatch):
    monkeypatch.setattr("rm.process.remote.FIRST_PATIENCE_S", 0.3)
    with pytest.raises(PolicyError, match="no answer of the matcher at 127"):
        run("remote", address=f"127.0.0.1:{free_port()}", otherwise="fail")


def test_who_is_not_there_is_waited_for_once(monkeypatch):
    """The manager does nothing else while it waits, so later it waits for an answer's time only."""
    waited: list[float] = []

    def nobody(channel, resources, queues, patience_s):
        waited.append(patience_s)
        raise WeftError("nobody there")

    monkeypatch.setattr(MatcherChannel, "describe", nobody)
    monkeypatch.setattr("rm.process.remote.PAUSE_S", 0.0)
    monkeypatch.setattr("rm.process.remote.FIRST_PATIENCE_S", 7.0)
    recorder = run("remote", address="127.0.0.1:1", timeout_s="0.25")
    assert {row.final_status for row in recorder.jobs} == {"SUCCEEDED"}
    assert len(waited) > 2
    assert waited[0] == 7.0
    assert set(waited[1:]) == {0.25}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "expected HOST:PORT"),
        ({"address": "x:1", "timeout_s": "0"}, "timeout_s"),
        ({"address": "x:1", "otherwise": "pray"}, "order or fail"),
    ],
)
def test_wrong_settings_are_told(options, says):
    with pytest.raises(InputError, match=says):
        run("remote", **options)


def test_live_it_is_asked_and_when_it_dies_jobs_go_on(script):
    port = free_port()
    stage = Stage("a", 30, 2.0, {"vcores": 4.0, "memory_mb": 1024.0})
    settings = LocalSettings(
        cluster="2x8vcores,8192memory_mb",
        matcher="remote",
        time_scale=20.0,
        options={"matcher.address": f"127.0.0.1:{port}", "matcher.timeout_s": "5"},
    )
    with (
        started(sys.executable, script, port) as process,
        LocalCluster(settings) as cluster,
        Client(cluster.address) as client,
    ):
        assert client.metrics().scheduler == "remote"
        first = client.submit(Job("first", (stage,)))
        until(lambda: client.application(first).final_status == "SUCCEEDED", "the first job ends")
        second = client.submit(Job("second", (stage,)))
        until(lambda: client.application(second).finished_tasks > 2, "the second job runs")
        process.send_signal(signal.SIGKILL)
        until(
            lambda: client.application(second).final_status == "SUCCEEDED", "it ends all the same"
        )
