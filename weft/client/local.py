"""A whole cluster on this machine: RM, AM host and NM as processes of their own, on loopback.

Every process ends with the one that started it, whatever happens to it (`--die-with`).
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from xml.sax.saxutils import escape

from weft.ha import local_etcd
from weft.model.errors import InputError, WeftError
from weft.policies import first_compile
from weft.policies.parameters import split_settings
from weft.runtime.kept_clock import CLOCK, KeptClock, clock_in, clock_of

# The first start compiles kernels, which takes long on a busy machine.
START_S = 180.0
# A store that is named may be starting, too, and its members have to elect one of them.
STORE_START_S, STORE_POLL_S = 30.0, 0.2
STOP_S = 10.0
# A process that ends in an error says so within its last lines, in one of these forms.
LAST_LINES = 20
_ERROR = re.compile(
    r"\[(error|critical) *\]|\"level\": \"(error|critical)\"|^error: |^Fatal Python error|"
    r"^[\w.]+(Error|Exception|Exit)\b"
)
# What may end alone (`LocalCluster.mend`) is started again so often.
RESTARTS_MAX = 20
DEFAULT_NODE = "16vcores,65536memory_mb,800disk_mbps,1000network_mbps"
# A real host keeps this much of its memory for itself.
KEPT_MB = 1024
EMULATED_NODES = 20
HADOOP_PORTS = {"client": 8032, "scheduler": 8035, "node": 8045, "files": 9870}
# A cluster has started when all its nodes are in one of these states: one whose disk is nearly full
# is there, and says why it does nothing.
UP = ("RUNNING", "UNHEALTHY", "DECOMMISSIONING", "DECOMMISSIONED")
# The cores of these roles can be replayed.
TAPED_ROLES = ("rm", "am", "nm")
PORTS = {
    "hadoop": (0, 9104),
    "rm": (8030, 9101),
    "nm": (8041, 9102),
    "am": (8050, 9103),
    "web": (8088, -1),
    "services": (13562, -1),
}


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """What a local cluster is made of.

    `nodes` 0: 20 emulated ones, or in process mode one: this host, with its cores and its memory
    but for 1 GB. Real nodes of another size, or several on one host, are described by `cluster`.

    `cluster` is a file or the short form, and its nodes are used instead of `nodes`. `matcher`,
    `planner` and `asker` replace those of the scheduler; `options` are named matcher.NAME,
    planner.NAME and so on. `mode` is emulated or process (each node an NM process that runs
    commands), `launch` hosted or process (each master a process of its own). Emulated nodes are
    spread over `nm_processes`. With `fixed_ports` the ports are the well-known ones, else any free
    ones.

    `state` keeps the Resource Manager's journal, `events` the facts of every process, and `tape` is
    a folder in which manager, masters and nodes keep every event to be replayed. `web` starts the
    pages and YARN's REST API, `hadoop` YARN's own wire for Spark, Flink and the like. Of several
    `managers` one leads and the others take over; they share the etcd at `store`
    (etcd://host:port,...), and one is started if that is empty. Several `members` are managers that
    each have a part of the nodes, behind one router. `rmadmin -refreshQueues` reads `queues`, or
    the cluster's file. `flags` maps a role to its "name=value".
    """

    nodes: int = 0
    cluster: str = ""
    scheduler: str = "capacity"
    matcher: str = ""
    planner: str = ""
    asker: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    time_scale: float = 1.0
    pace: str = "prompt"
    mode: str = "emulated"
    launch: str = "hosted"
    nm_processes: int = 1
    fixed_ports: bool = False
    state: bool = False
    events: bool = False
    tape: Path | None = None
    web: bool = False
    hadoop: bool = False
    queues: str = ""
    managers: int = 1
    members: int = 1
    store: str = ""
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)


class LocalCluster:
    """Started by `with`; `folder` holds each process's output and, if asked, events and state."""

    # A role's module and its flags follow this.
    runner: Sequence[str] = (sys.executable, "-m")

    def __init__(
        self,
        settings: LocalSettings,
        folder: Path | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`tell` hears what a start waits for, where that takes long, and which nodes are ill."""
        self._tell, self._told = tell, False
        self.settings = settings
        self._temporary = tempfile.TemporaryDirectory(prefix="weft-") if folder is None else None
        self.folder = Path(self._temporary.name) if self._temporary else Path(folder or ".")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ready: dict[str, dict[str, Any]] = {}
        self.epoch_s = time.time()
        self._restarts = 0
        # It is the descriptor of the folder, locked against other clusters while this one runs.
        self._held = -1
        self._store = settings.store
        # With `hadoop` this is HADOOP_CONF_DIR.
        self.conf: Path | None = None

    @property
    def temporary(self) -> bool:
        """Whether the folder goes with the cluster."""
        return self._temporary is not None

    @property
    def address(self) -> str:
        """host:port of the Resource Manager, of several with commas; of members their router's."""
        names = self.managers if self.settings.members == 1 else ["router"]
        return ",".join(str(self.ready[name]["address"]) for name in names)

    @property
    def managers(self) -> list[str]:
        """The names of the Resource Managers' processes."""
        count = max(self.settings.managers, self.settings.members)
        return _numbered("rm", count)

    @property
    def url(self) -> str:
        """URL of the pages, http://host:port/cluster; only with `web`."""
        return str(self.ready["web"]["url"])

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            self._clean()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        died = self.failed() if isinstance(error, WeftError) else ""
        self.stop()
        self._clean()
        if died and died not in str(error):
            # A client knows only that there is no answer.
            raise WeftError(died) from error

    def _hold(self) -> None:
        """Keep the folder for this cluster; raises WeftError where another one runs in it."""
        held = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            raise WeftError(f"{self.folder} is in use by another cluster") from None
        self._held = held

    def _clean(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
        if self._temporary is not None:
            self._temporary.cleanup()

    def start(self) -> None:
        """Start every process and wait until all nodes are up; raises WeftError saying why not."""
        members = self.settings.members
        if members > 1 and self.settings.managers > 1:
            raise InputError("--members", "of several managers each are started host by host")
        if self._nm_count() < members:
            raise InputError("--members", f"{members} want as many nodes: there are fewer")
        port = PORTS["rm"][0]
        if self.settings.fixed_ports and not _is_free(port):
            raise WeftError(
                f"port {port} is in use, perhaps by another cluster: `weft down` ends one that was "
                "detached, --any-ports takes free ports"
            )
        self._hold()
        # All start at once, and find each other by files that have their addresses.
        self._start_etcd()
        self._take_clock()
        for name in self.managers:
            self._launch(name, "rm", self._rm_flags(name))
        hosts = _numbered("am", members)
        for host in hosts:
            self._launch(host, "am", self._am_flags(host))
        for number in range(self._nm_count()):
            self._launch(f"nm{number}", "nm", self._nm_flags(number))
        if members > 1:
            self._launch("router", "weft.router", self._router_flags())
        if self.settings.web:
            self._launch("web", "weft.web", self._web_flags())
        for name in self.managers:
            self._await(name)
        if members > 1:
            self._await("router")
        for host in hosts:
            self._await(host)
        for number in range(self._nm_count()):
            self._await(f"nm{number}")
        if self.settings.web:
            self._await("web")
        self._await_nodes()
        if self.settings.hadoop:
            self.start_services()
            self.start_hadoop()

    def _place(self, role: str) -> str:
        """Return host:port of a role; while that is not known yet, the file that will say it."""
        if role == "rm" and self.settings.managers > 1:
            return ",".join(self._place_of(name) for name in self.managers)
        if role == "rm" and self.settings.members > 1:
            return self._place_of("router")
        return self._place_of(role)

    def _place_of(self, role: str) -> str:
        known = self.ready.get(role)
        return str(known["address"]) if known else f"@{(self.folder / f'{role}.ready').absolute()}"

    def start_web(self) -> None:
        """Start (or, after it ended, restart) the pages; what they learned outlives them."""
        self._launch("web", "weft.web", self._web_flags())
        self._await("web")

    def mend(self) -> str:
        """Restart what may end alone, and return what was done.

        That is the pages, which are but a client, one of several Resource Managers, as another one
        leads then, and the members' router. Where the manager's state is in a file, it is every
        process, as the others go on meanwhile and tell the new one what there is.
        """
        state = self.settings.state
        managers = self.managers if self.settings.managers > 1 or state else ()
        starts: dict[str, Callable[[], None]] = {
            **{name: partial(self.start_manager, name) for name in managers},
            "router": self.start_router,
            "etcd": self._run_etcd,
            "web": self.start_web,
            "services": self.start_services,
        }
        if state:
            for name in _numbered("am", self.settings.members):
                starts[name] = partial(self._start_again, name, "am", partial(self._am_flags, name))
            for number in range(self._nm_count()):
                flags = partial(self._nm_flags, number)
                starts[f"nm{number}"] = partial(self._start_again, f"nm{number}", "nm", flags)
            starts["hadoop"] = self.start_hadoop
        for name, start in starts.items():
            process = self.processes.get(name)
            if process is None or process.poll() is None or self._restarts >= RESTARTS_MAX:
                continue
            self._restarts += 1
            said = f"{self._how_it_ended(name)}: started again ({self.output(name)})"
            start()
            return said
        return ""

    def _start_again(self, name: str, module: str, flags: Callable[..., list[str]]) -> None:
        """Start a process again where others know it to be."""
        self._launch(name, module, self._known_port(name, flags()))
        self._await(name)

    def start_services(self) -> None:
        """Start (or, after a kill, restart) the auxiliary services of the nodes."""
        flags = ["--work-dir", str(self.folder / "work"), *self._ports("services")]
        if self.web_address:
            flags += ["--web", f"http://{self.web_address}"]
        flags = self._known_port("services", flags) + self._common("services", "services")
        self._launch("services", "weft.yarn.services", flags)
        self._await("services")

    def start_hadoop(self) -> None:
        """Start (or, after a kill, restart) the gateway of YARN's wire, and write its folder."""
        self._launch("hadoop", "weft.yarn", self._hadoop_flags())
        self._await("hadoop")
        self.conf = write_conf(self.folder / "hadoop-conf", self.ready["hadoop"], self.web_address)

    @property
    def web_address(self) -> str:
        """host:port of the pages, empty without."""
        url = str(self.ready.get("web", {}).get("url", ""))
        return url.partition("://")[2].partition("/")[0]

    def start_manager(self, name: str = "rm") -> None:
        """Start (or, after a kill, restart) a Resource Manager."""
        self._launch(name, "rm", self._rm_flags(name))
        self._await(name)

    def start_router(self) -> None:
        """Start (or, after a kill, restart) the members' router."""
        self._launch("router", "weft.router", self._router_flags())
        self._await("router")

    def _start_etcd(self) -> None:
        """Start the store that several managers share, where none is named."""
        if self.settings.managers < 2 or self._store:
            return
        self._run_etcd()
        self._store = f"etcd://{self.ready['etcd']['address']}/weft"

    def _run_etcd(self) -> None:
        before = str(self.ready.get("etcd", {}).get("address", ""))
        process, address = local_etcd.start(
            local_etcd.find(), self.folder / "etcd", self.output("etcd"), before
        )
        self.processes["etcd"] = process
        self.ready["etcd"] = {"address": address, "metrics": address}

    def _take_clock(self) -> None:
        """Go on by the clock of a state that is there; raises InputError for another scale."""
        if self._store:
            kept, where = self._clock_in_etcd(), self._store
        elif self.settings.state:
            folder = self._state_folder(self.managers[0])
            kept, where = clock_in(folder), str(folder)
        else:
            return
        if kept is not None:
            self.epoch_s = kept.epoch_s
            kept.check(KeptClock(kept.epoch_s, self.settings.time_scale), where)

    def _clock_in_etcd(self) -> KeptClock | None:
        from weft.ha.etcd import Etcd, EtcdAwayError, joined, settings_of

        given = split_settings(tuple(self.settings.flags.get("rm", ())), "--rm-set")
        named = {key.replace("-", "_"): value for key, value in given.items()}
        user = named.pop("store_user", "")
        paths = {key: Path(value) for key, value in named.items() if key.startswith("store_")}
        ca, cert, key, password = (
            paths.get(f"store_{name}") for name in ("ca", "cert", "key", "password_file")
        )
        where = settings_of(self._store, ca, cert, key, user, password)
        etcd, give_up, told = Etcd(where), time.monotonic() + STORE_START_S, False
        with contextlib.closing(etcd):
            while True:
                try:
                    found, _ = etcd.get(joined((where.prefix, CLOCK)))
                except EtcdAwayError as error:
                    if time.monotonic() > give_up:
                        raise
                    if not told:
                        self._tell(f"waiting for the store: {error}")
                    told = True
                    time.sleep(STORE_POLL_S)
                else:
                    return None if found is None else clock_of(found.value.decode(), where.text)

    def _state_folder(self, name: str) -> Path:
        alone = self.settings.members == 1
        return self.folder / ("state" if alone else f"state-{self.managers.index(name) + 1}")

    def stop(self) -> None:
        """End every process, the youngest first, and wait for it."""
        for process in reversed(self.processes.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for process in reversed(self.processes.values()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()

    def failed(self) -> str:
        """Return how a process ended that was not asked to, and its last error; empty: all run."""
        for name, process in self.processes.items():
            if process.poll() is None:
                continue
            how, error = self._how_it_ended(name), self._last_error(name)
            if self.temporary:
                where = "its log goes with the cluster: --dir keeps one"
            else:
                where = f"its log: {self.output(name).absolute()}"
            return f"{how}{f': {error}' if error else ', and logged no error'} ({where})"
        return ""

    def _how_it_ended(self, name: str) -> str:
        """Return the name of a process that ended, and the signal or the exit code."""
        code = self.processes[name].returncode
        if code >= 0:
            return f"{name} ended with exit code {code}"
        with contextlib.suppress(ValueError):
            return f"{name} was ended by {signal.Signals(-code).name}"
        return f"{name} was ended by signal {-code}"

    def _last_error(self, name: str) -> str:
        """Return the error among the last lines of a process; empty: it logged none."""
        code = self.processes[name].returncode
        lines = self.output(name).read_text(errors="replace").strip().splitlines()
        errors = [line for line in lines[-LAST_LINES:] if _ERROR.search(line)]
        if errors:
            return errors[-1].removeprefix("error: ")
        # Who ended by itself said why, in whatever form.
        return self._said_last(name) if code > 0 else ""

    def output(self, name: str) -> Path:
        """Return the file with a process's output."""
        return self.folder / f"{name}.log"

    # -- parts -------------------------------------------------------------------------------------

    def _node_count(self) -> int:
        if not self.settings.cluster:
            usual = 1 if self.settings.mode == "process" else EMULATED_NODES
            return self.settings.nodes or usual
        from weft.workloads.cluster_file import load_cluster

        return len(load_cluster(self.settings.cluster).nodes)

    def _nm_count(self) -> int:
        if self.settings.mode == "process":
            return self._node_count()
        return min(max(self.settings.nm_processes, self.settings.members), self._node_count())

    def _cluster(self) -> str:
        node = this_host() if self.settings.mode == "process" else DEFAULT_NODE
        return self.settings.cluster or f"{self._node_count()}x{node}"

    def _parts(self, *names: str) -> list[str]:
        """Return the flags of the parts of the scheduler that a role runs."""
        settings = self.settings
        flags = ["--scheduler", settings.scheduler]
        for name in names:
            if given := getattr(settings, name):
                flags += [f"--{name}", given]
        for key, value in settings.options.items():
            if key.partition(".")[0] in names:
                flags += ["--set", f"{key}={value}"]
        return flags

    def _ports(self, role: str, number: int = 0) -> list[str]:
        port, metrics = PORTS[role] if self.settings.fixed_ports and number == 0 else (0, 0)
        return ["--port", str(port), "--metrics-port", str(metrics)]

    def _common(self, name: str, role: str) -> list[str]:
        flags = [
            "--epoch-s",
            repr(self.epoch_s),
            "--time-scale",
            repr(self.settings.time_scale),
            "--ready-file",
            str(self.folder / f"{name}.ready"),
            "--die-with",
            str(os.getpid()),
        ]
        if self.settings.events:
            flags += ["--events", str(self.folder / f"{name}.events")]
        if self.settings.tape is not None and role in TAPED_ROLES:
            flags += ["--tape", str(self.settings.tape.absolute())]
        for pair in self.settings.flags.get(role, ()):
            key, equals, value = pair.partition("=")
            if not equals or not key:
                raise InputError(f"--{role}", f"expected name=value, got {pair!r}")
            name = key.replace("_", "-")
            if value.lower() in ("true", "false"):
                # A switch takes no value.
                flags.append(f"--{name}" if value.lower() == "true" else f"--no-{name}")
            else:
                flags.append(f"--{name}={value}")
        return flags

    def _rm_flags(self, name: str = "rm") -> list[str]:
        number, members = self.managers.index(name), self.settings.members
        # Of members the router has the well-known port.
        flags = self._known_port(name, self._ports("rm", number + (members > 1)))
        if members > 1:
            started_ms = str(int(self.epoch_s * 1000))
            flags += ["--member", f"{number + 1}/{members}", "--cluster-ts", started_ms]
        flags += ["--cluster", self._cluster(), *self._parts("matcher")]
        flags += ["--pace", self.settings.pace, *self._patience()]
        if self._store:
            flags += ["--store", self._store]
        elif self.settings.state:
            flags += ["--state-dir", str(self._state_folder(name))]
        return flags + self._common(name, "rm")

    def _known_port(self, name: str, flags: list[str]) -> list[str]:
        """Return flags with the port that others know, where a process is started again."""
        if name not in self.ready:
            return flags
        return [*flags, "--port", str(self.ready[name]["address"]).rpartition(":")[2]]

    def _router_flags(self) -> list[str]:
        flags = [f"--member={self._place_of(name)}" for name in self.managers]
        ports = self._known_port("router", self._ports("rm"))
        return flags + ports + self._common("router", "router")

    def _patience(self) -> list[str]:
        """Return flags: durations that guard against real delays ignore how fast the clock is."""
        scale = self.settings.time_scale
        if scale <= 1:
            return []
        flags = [
            "--node-expiry-s",
            str(600 + 60 * scale),
            "--master-expiry-s",
            str(600 + 60 * scale),
        ]
        flags += ["--resend-after-s", str(3 * scale)]
        if self.settings.pace == "prompt":
            # Heartbeats only keep alive in this pace.
            heartbeat_s = str(max(1.0, scale / 4))
            flags += ["--heartbeat-s", heartbeat_s, "--master-heartbeat-s", heartbeat_s]
        return flags

    def _member_place(self, role: str, number: int) -> str:
        """Return the address of a role for the `number`-th of all processes that want one."""
        if self.settings.members == 1:
            return self._place(role)
        return self._place_of(_numbered(role, self.settings.members)[number])

    def _am_flags(self, name: str) -> list[str]:
        number = _numbered("am", self.settings.members).index(name)
        manager = self._member_place("rm", number)
        flags = ["--hosting", "--manager", manager, *self._parts("planner", "asker")]
        flags += ["--resend-s", str(3 * max(1.0, self.settings.time_scale))]
        return flags + self._ports("am", number) + self._common(name, "am")

    def _web_flags(self) -> list[str]:
        flags = ["--manager", self._place("rm"), "--scheduler", self.settings.scheduler]
        ports = self._ports("web")
        # A port in use for pages is no reason not to start.
        if "web" not in self.ready and not _is_free(int(ports[1])):
            ports[1] = "0"
        if "web" in self.ready:
            # A restart keeps the address that others know.
            ports[1] = self.web_address.rpartition(":")[2]
        history = ["--history", str(self.folder / "history.db")]
        return [*flags, *history, *ports, *self._common("web", "web")]

    def _hadoop_flags(self) -> list[str]:
        flags = ["--manager", self._place("rm"), "--dir", str(self.folder / "hadoop")]
        flags += ["--files", str(self.folder / "hadoop-files")]
        flags += ["--shuffle-port", self._place_of("services").rpartition(":")[2]]
        queues = self.settings.queues or self.settings.cluster
        if queues and Path(queues).exists():
            flags += ["--queues", str(Path(queues).resolve())]
        if self.web_address:
            flags += ["--web", f"http://{self.web_address}"]
        # A restart keeps the addresses that others know.
        known = self.ready.get("hadoop", {})
        places = {
            "client": known.get("clients"),
            "scheduler": known.get("schedulers"),
            "files": str(known.get("files", "")).rstrip("/"),
            "": known.get("address"),
        }
        for name, port in HADOOP_PORTS.items():
            last = str(places.get(name) or "").rpartition(":")[2]
            chosen = last or str(port if self.settings.fixed_ports else 0)
            flags += [f"--{name}-port", chosen]
        if places[""]:
            flags += ["--port", str(places[""]).rpartition(":")[2]]
        return [*flags, "--metrics-port", "0", *self._common("hadoop", "hadoop")]

    def _nm_flags(self, number: int) -> list[str]:
        count, all_nodes = self._nm_count(), self._node_count()
        first = number * all_nodes // count
        nodes = (number + 1) * all_nodes // count - first
        member = number % self.settings.members
        flags = [
            "--manager",
            self._member_place("rm", member),
            "--am-host",
            self._member_place("am", member),
            "--launch",
            self.settings.launch,
            "--mode",
            self.settings.mode,
            "--cluster",
            self._cluster(),
            "--nodes",
            str(nodes),
            "--first-node",
            str(first + 1),
            "--work-dir",
            str(self.folder / "work"),
            "--resend-after-s",
            str(3 * max(1.0, self.settings.time_scale)),
            "--register-retry-s",
            str(2 * max(1.0, self.settings.time_scale)),
            *self._master_args(),
        ]
        if self.settings.mode == "process" and count > 1:
            # The processes share the cores.
            flags += ["--spawners", str(max(1, (os.cpu_count() or 1) // count))]
        if self.settings.hadoop:
            # YARN does so, and a Java machine that starts needs more than its share of cores.
            flags += ["--cpu-limit", "share"]
        return flags + self._ports("nm", number) + self._common(f"nm{number}", "nm")

    def _master_args(self) -> list[str]:
        """Return what a node passes on to the masters' processes, where each is one of its own."""
        parts = self._parts("planner", "asker")
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [f"--master-args={flag}={value}" for flag, value in pairs]

    # -- processes ---------------------------------------------------------------------------------

    def _launch(self, name: str, module: str, flags: list[str]) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self.folder / f"{name}.ready").unlink()
        with self.output(name).open("ab") as output:
            self.processes[name] = self._begin(module, flags, output)

    def _begin(self, module: str, flags: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.runner, module, *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # A Ctrl-C at the terminal reaches the command only, which ends the rest in order.
            start_new_session=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )

    def _await(self, name: str) -> None:
        path = self.folder / f"{name}.ready"
        deadline = time.monotonic() + START_S
        while not path.exists():
            if (code := self.processes[name].poll()) is not None:
                if code == 2:
                    # The input is bad, and its last words name the place.
                    raise InputError("", self._said_last(name))
                raise WeftError(f"{name} did not start: {self._said_last(name)}")
            if time.monotonic() > deadline:
                raise WeftError(f"{name} did not start within {START_S:.0f} s")
            self._tell_compiling(name)
            time.sleep(0.02)
        self.ready[name] = json.loads(path.read_text())

    def _tell_compiling(self, name: str) -> None:
        """Tell, once, that the process that is waited for compiles."""
        if not self._told and first_compile.TEXT in self.output(name).read_text("utf-8", "replace"):
            self._told = True
            self._tell(first_compile.TEXT)

    def _await_nodes(self) -> None:
        from weft.client.api import Client

        wanted, deadline = self._node_count(), time.monotonic() + START_S
        with Client(self.address) as client:
            # Those that a kept state says are out of service stay so.
            while sum((nodes := client.metrics().nodes).get(state, 0) for state in UP) < wanted:
                if failed := self.failed():
                    raise WeftError(failed)
                if time.monotonic() > deadline:
                    told = ", ".join(f"{count} {state}" for state, count in nodes.items() if count)
                    text = f"not all of {wanted} nodes came up within {START_S:.0f} s"
                    raise WeftError(f"{text}: {told or 'none'}")
                time.sleep(0.02)
            for node in client.nodes() if nodes.get("UNHEALTHY") else ():
                if node.health_report:
                    self._tell(f"{node.node_id} gets no work: {node.health_report}")

    def _said_last(self, name: str) -> str:
        lines = self.output(name).read_text(errors="replace").strip().splitlines()
        if not lines:
            # It may have no room to write a word.
            full = not shutil.disk_usage(self.folder).free
            return f"no space is left in {self.folder}" if full else "no output"
        said = [line for line in lines if line.startswith("error:")] or lines
        return said[-1].removeprefix("error: ")


def _numbered(name: str, count: int) -> list[str]:
    """Return names of so many processes of a kind: the first has no number."""
    return [name, *(f"{name}{number}" for number in range(2, count + 1))]


def write_conf(folder: Path, ready: Mapping[str, Any], web: str) -> Path:
    """Write a Hadoop configuration folder for a gateway; HADOOP_CONF_DIR names it."""
    host = str(ready["clients"]).rpartition(":")[0]
    yarn = {
        "yarn.resourcemanager.hostname": host,
        "yarn.resourcemanager.address": str(ready["clients"]),
        "yarn.resourcemanager.admin.address": str(ready["clients"]),
        "yarn.resourcemanager.scheduler.address": str(ready["schedulers"]),
        "yarn.resourcemanager.webapp.address": web or f"{host}:8088",
    }
    core = {"fs.defaultFS": str(ready.get("files") or "file:///")}
    folder.mkdir(parents=True, exist_ok=True)
    write_site(folder / "yarn-site.xml", yarn)
    write_site(folder / "core-site.xml", core)
    return folder


def write_site(path: Path, values: Mapping[str, str]) -> None:
    """Write one of Hadoop's configuration files."""
    rows = "".join(
        f"  <property><name>{key}</name><value>{escape(value)}</value></property>\n"
        for key, value in values.items()
    )
    text = f'<?xml version="1.0"?>\n<configuration>\n{rows}</configuration>\n'
    path.write_text(text, "utf-8")


def this_host() -> str:
    """Return this host as a node in short form: its cores, and its memory but for what it keeps.

    What is allowed to this process counts: its cores and, in a container, the memory limit.
    """
    import psutil

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory_mb = psutil.virtual_memory().total // 2**20
    # The file may be absent, without control groups, or say "max".
    with contextlib.suppress(OSError, ValueError):
        memory_mb = min(memory_mb, int(Path("/sys/fs/cgroup/memory.max").read_text()) // 2**20)
    return f"{cores or 1}vcores,{max(1, memory_mb - KEPT_MB)}memory_mb"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
