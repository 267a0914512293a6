"""Build the image and hold the composed cluster to its promises while containers fail.

Any Docker engine will do: the one that answers; else one that WEFT_DOCKER_ENGINE (or a helper next
to this repository) starts in WEFT_DOCKER_ENGINE_DIR, by `HELPER start|base|stop DIR`. Where neither
is possible the check says so and passes.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HELPER = Path(os.environ.get("WEFT_DOCKER_ENGINE") or ROOT.parent / "shared/tools/docker-engine")
BASES = sorted(set(re.findall(r"^FROM (\S+)", (ROOT / "deploy/Dockerfile").read_text(), re.M)))
# This is a limit for what must happen, never a measure.
PATIENCE_S = 240.0
NODE_MANAGERS, NODES = 3, 4
JOBS = 13
# What pip and apt say when no package can be had.
NO_NETWORK = re.compile(
    "Could not resolve|Temporary failure|Failed to establish|Unable to fetch|timed out|"
    "Connection refused|Network is unreachable|No matching distribution"
)


class Failure(Exception):
    """A promise that was not kept."""


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"image-test: {text}", flush=True)


def run(*command: str, **more: Any) -> str:
    """Run to the end and return its output. Raises Failure with what it wrote."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=3600, **more
    )
    if done.returncode:
        raise Failure(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def freeze(container: str) -> None:
    """Pause a container.

    Under cgroups v1 the kernel may fail to freeze one whose threads are busy: then try again, a few
    times.
    """
    for left in reversed(range(5)):
        try:
            run("docker", "pause", container)
            return
        except Failure:
            if not left:
                raise
            time.sleep(1.0)


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for a condition; raises Failure naming it."""
    give_up = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > give_up:
            raise Failure(f"never happened: {what}")
        time.sleep(0.5)
    return found


# -- the engine ------------------------------------------------------------------------------------


@contextmanager
def engine() -> Iterator[str]:
    """Yield "" where there is an engine to talk to, else the reason why there is none."""
    if (
        shutil.which("docker")
        and not subprocess.run(["docker", "version"], capture_output=True, check=False).returncode
    ):
        yield "" if has_compose() else "the engine here has no Compose v2"
        return
    if not HELPER.is_file() or os.geteuid() != 0:
        yield "no Docker engine answers, and none can be started here"
        return
    kept = os.environ.get("WEFT_DOCKER_ENGINE_DIR")
    folder = kept or tempfile.mkdtemp(prefix="weft-engine-")
    try:
        try:
            say("starting an engine")
            started = run(str(HELPER), "start", folder)
            os.environ.update(re.findall(r"(DOCKER_\w+)=(\S+)", started))
            for base in BASES:
                if not present(base):
                    say(f"making {base}")
                    run(str(HELPER), "base", folder, base)
            problem = ""
        except Failure as failure:
            problem = f"an engine cannot be had here: {failure}"
        yield problem
    finally:
        run(str(HELPER), "stop", folder)
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def has_compose() -> bool:
    """Return whether Compose v2 is there."""
    asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return asked.returncode == 0


def present(image: str) -> bool:
    """Return whether the engine has an image."""
    asked = subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False)
    return asked.returncode == 0


def can_pull(images: Sequence[str]) -> bool:
    """Return whether images of registries can be had."""
    for image in images:
        try:
            pulled = subprocess.run(
                ["docker", "pull", "-q", image], capture_output=True, check=False, timeout=300
            )
        except subprocess.TimeoutExpired:
            return False
        if pulled.returncode:
            return False
    return True


# -- the cluster -----------------------------------------------------------------------------------


class Composed:
    """One project of docker-compose.yml."""

    def __init__(self, project: str) -> None:
        self.project = project
        text = (ROOT / "docker-compose.yml").read_text()
        outside = re.findall(r"^    image: ((?:prom|grafana)/\S+)", text, re.M)
        self.whole = can_pull(outside)
        files = ["docker-compose.yml", "deploy/compose.test.yml"]
        if not self.whole:
            say("images of Prometheus and Grafana cannot be pulled here: left out")
            files.append("deploy/compose.offline.yml")
        self._base = ["docker", "compose", "-p", project]
        for name in files:
            self._base += ["-f", name]
        os.environ.update(WEFT_TAG="test", WEFT_NODES=str(NODES))
        os.environ.update(WEFT_NODE_EXPIRY_S="6", WEFT_MASTER_EXPIRY_S="12")

    def do(self, *arguments: str) -> str:
        """Run one compose command."""
        return run(*self._base, *arguments)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Run one compose command in the background."""
        return subprocess.Popen(
            [*self._base, *arguments],
            cwd=ROOT,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def inspect(self, service: str, number: int = 1) -> dict[str, Any]:
        """Return what the engine knows of a container."""
        found = json.loads(run("docker", "inspect", self.name(service, number)))[0]
        return dict(found)

    def name(self, service: str, number: int = 1) -> str:
        """Return the container's name."""
        return f"{self.project}-{service}-{number}"

    def address(self, service: str, number: int = 1) -> str:
        """Return its IP address."""
        networks = self.inspect(service, number)["NetworkSettings"]["Networks"]
        return str(next(iter(networks.values()))["IPAddress"])

    def healthy(self, service: str, number: int = 1) -> bool:
        """Return what the health check says."""
        state = self.inspect(service, number)["State"]
        return bool(state["Running"] and state.get("Health", {}).get("Status") == "healthy")

    def ask(self, *command: str) -> Any:
        """Run a `weft` command inside the cluster; return its data, None where it failed."""
        try:
            return json.loads(self.do("exec", "-T", "rm", "weft", *command, "--json"))
        except (Failure, ValueError):
            return None

    def nodes(self, state: str) -> int:
        """Return how many nodes are in a state; -1: not known now."""
        found = self.ask("nodes")
        return -1 if found is None else sum(node["state"] == state for node in found)

    def containers(self) -> list[tuple[str, int]]:
        """Return every container of the image."""
        managers = [("nm", number) for number in range(1, NODE_MANAGERS + 1)]
        return [("rm", 1), ("am", 1), ("web", 1), *managers]


# -- the promises ----------------------------------------------------------------------------------


def check_hardening(cluster: Composed) -> None:
    """Check that nothing runs as root, and that nothing can be written beside the volumes."""
    for service, number in cluster.containers():
        known = cluster.inspect(service, number)
        if (
            known["Config"]["User"] in ("", "0", "root")
            or not known["HostConfig"]["ReadonlyRootfs"]
        ):
            raise Failure(f"{cluster.name(service, number)} may do too much")


def demo_through(cluster: Composed, what: str, fault: Callable[[], None]) -> None:
    """Run the sample jobs to their end although something breaks meanwhile."""
    began_s = time.monotonic()
    ended = ended_apps(cluster)
    demo = cluster.begin("--profile", "demo", "run", "--rm", "-T", "demo")
    try:
        until(lambda: live_apps(cluster) or demo.poll() is not None, "the jobs are there")
        say(f"{what} ...")
        fault()
        output, _ = demo.communicate(timeout=PATIENCE_S)
    finally:
        if demo.poll() is None:
            demo.kill()
    if demo.returncode:
        raise Failure(f"the demo failed when {what}:\n{output}\n{cluster.do('logs', '--tail=40')}")
    done = ended_apps(cluster) - ended
    if done != JOBS:
        raise Failure(f"{done} jobs instead of {JOBS} succeeded when {what}")
    say(f"{what}: {JOBS} jobs succeeded after {time.monotonic() - began_s:.0f} s")


def live_apps(cluster: Composed) -> int:
    """Return how many applications with finished tasks are not done."""
    found = cluster.ask("apps") or []
    return sum(app["state"] == "RUNNING" and app["finished_tasks"] > 0 for app in found)


def ended_apps(cluster: Composed) -> int:
    """Return how many applications succeeded."""
    found = until(lambda: cluster.ask("apps"), "apps are listed") if cluster.ask("apps") else []
    return sum(app["final_status"] == "SUCCEEDED" for app in found)


def all_back(cluster: Composed) -> None:
    """Wait until every node runs again, and every health check is content."""
    wanted = NODE_MANAGERS * NODES
    until(lambda: cluster.nodes("RUNNING") == wanted, f"{wanted} nodes run")
    for service, number in cluster.containers():
        until(partial(cluster.healthy, service, number), f"{service} {number} is healthy")


def lost(cluster: Composed) -> None:
    """Wait until the nodes of one container are given up."""
    until(lambda: cluster.nodes("LOST") == NODES, f"{NODES} nodes are LOST")


def faults(cluster: Composed) -> list[tuple[str, Callable[[], None]]]:
    """Return what breaks, each during a run of the sample jobs."""
    first, second, third = (cluster.name("nm", number) for number in (1, 2, 3))
    manager, network = cluster.name("rm"), f"{cluster.project}_cluster"

    def kill_node_manager() -> None:
        run("docker", "kill", first)
        lost(cluster)
        run("docker", "start", first)

    def kill_manager() -> None:
        run("docker", "kill", manager)
        run("docker", "start", manager)
        until(lambda: cluster.healthy("rm"), "the Resource Manager is back")

    def pause() -> None:
        freeze(second)
        lost(cluster)
        run("docker", "unpause", second)

    def cut_off() -> None:
        run("docker", "network", "disconnect", network, third)
        lost(cluster)
        run("docker", "network", "connect", network, third)

    return [
        ("a node manager is killed", kill_node_manager),
        ("the Resource Manager is killed", kill_manager),
        ("a node manager is paused", pause),
        ("a node manager is cut off", cut_off),
    ]


def check_pages(cluster: Composed) -> None:
    """Check that pages and series are served to other containers and the engine's host."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    urls = [f"http://{cluster.address('web')}:8088/ws/v1/cluster/info"]
    ports = {"rm": 9101, "am": 9103, "nm": 9102}
    for service, number in cluster.containers():
        if service in ports:
            urls.append(f"http://{cluster.address(service, number)}:{ports[service]}/metrics")
    for url in urls:
        with opener.open(url, timeout=30) as answer:
            if answer.status != 200 or not answer.read():
                raise Failure(f"{url}: {answer.status}")
    if cluster.whole:
        for service in ("prometheus", "grafana"):
            until(partial(cluster.healthy, service), f"{service} is healthy")


def check_prometheus_beside(cluster: Composed) -> None:
    """Check with a Prometheus of the host instead of an image that cannot be pulled."""
    program = shutil.which("prometheus")
    if cluster.whole or program is None:
        return
    jobs = {"weft-rm": [("rm", 1, 9101)], "weft-am": [("am", 1, 9103)]}
    jobs["weft-nm"] = [("nm", number, 9102) for number in range(1, NODE_MANAGERS + 1)]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "deploy/prometheus" / f) for f in ("rules.yml", "alerts.yml")],
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [
                    {"targets": [f"{cluster.address(s, n)}:{port}" for s, n, port in places]}
                ],
            }
            for job, places in jobs.items()
        ],
    }
    address = "127.0.0.1:19090"
    with tempfile.TemporaryDirectory(prefix="weft-prometheus-") as folder:
        path = Path(folder) / "prometheus.yml"
        # JSON is YAML.
        path.write_text(json.dumps(config))
        process = subprocess.Popen(
            [
                program,
                f"--config.file={path}",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={address}",
                "--log.level=error",
            ],
        )
        try:
            until(lambda: scraped(address) == 2 + NODE_MANAGERS, "Prometheus scrapes everything")
        finally:
            process.terminate()
            process.wait(30)


def scraped(address: str) -> int:
    """Return how many targets are up."""
    try:
        with urllib.request.urlopen(
            f"http://{address}/api/v1/query?query=sum(up)", timeout=10
        ) as answer:
            found = json.load(answer)["data"]["result"]
    except OSError:
        return 0
    return int(found[0]["value"][1]) if found else 0


def check_stop(cluster: Composed) -> None:
    """Check that SIGTERM ends every process in order: exit code 0, long before it is killed."""
    cluster.do("stop")
    for service, number in cluster.containers():
        state = cluster.inspect(service, number)["State"]
        if state["ExitCode"]:
            raise Failure(f"{cluster.name(service, number)} ended with {state['ExitCode']}")


def main() -> int:
    """Return exit code 0 where all is kept, or skipped with a reason."""
    with engine() as missing:
        if missing:
            say(f"skipped: {missing}")
            return 0
        cluster = Composed(f"weft-test-{os.getpid()}")
        try:
            say("building the image")
            try:
                run("docker", "build", "-f", "deploy/Dockerfile", "-t", "weft:test", ".")
            except Failure as error:
                if NO_NETWORK.search(str(error)):
                    say(f"skipped: packages cannot be had inside a build here: {error}")
                    return 0
                raise
            say("starting the cluster")
            cluster.do("up", "-d", "--no-build", "--wait", "--scale", f"nm={NODE_MANAGERS}")
            all_back(cluster)
            check_hardening(cluster)
            for what, fault in faults(cluster):
                demo_through(cluster, what, fault)
                all_back(cluster)
            check_pages(cluster)
            check_prometheus_beside(cluster)
            check_stop(cluster)
        except Failure as error:
            print(f"image-test: failed: {error}", file=sys.stderr)
            return 1
        finally:
            cluster.do("--profile", "demo", "down", "-v", "-t", "15")
    say("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
