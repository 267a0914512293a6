"""What a row of a paper depends on, as one digest: rows are kept by it, and never by a name.

A digest covers

* the code that makes the row: the source of its function and of all that this calls, function by
  function, in `lab`, the workloads' readers and the measures (`FOLLOWED`), without comments,
  docstrings and layout; constants by their values;
* its own parameters, with the parts and options of the schedulers;
* the content of the files that it reads;
* what the schedulers and planners *decide*: the decisions of a short canonical run of each.

The last stands for the cores' code. A digest over their source would be safe, and useless: most
commits touch a role without changing what any simulation does, and each would call every row of
every paper stale. A canonical run can miss a change, so a test computes one row of every figure
anew, and rows that it finds to differ are left behind by raising `EDITION`.
"""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from am.plan.bounds.bounds import bounds_of
from am.plan.registry import PlanRequest, planner
from lab.inputs import public_files
from sim.cluster import Simulation
from sim.process.command import quiet_collector
from sim.process.provenance import file_digest
from sim.recorder import Recorder
from sim.reshape import misestimate
from sim.results import Run, dominant_shares, jain_index, jct_s, utilisation
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.dag import Machines, dag_of_job
from weft.model.errors import InputError
from weft.model.job import Edge, EdgeKind, Job, Stage
from weft.model.queues import DEFAULT_QUEUES, QueueSpec
from weft.model.resources import Kind, ResourceType, ResourceTypes
from weft.policies.presets import Preset, label

# Raised by one where a row that counts as good comes out otherwise.
EDITION = 1
FOLLOWED = ("lab.", "weft.workloads.", "sim.results", "sim.reshape")
# Half of SHA-256 of the public inputs, for where they are not at hand.
PUBLIC: Mapping[str, str] = {
    "carbyne-workloads/queries_tpcds_new.txt": "9741d7630cfe6c2c9eda1638fd237a32",
    "carbyne-workloads/queries_tpch.txt": "29d6bc416cb2eb8571fc95088affcf22",
    "carbyne-workloads/queries_bb.txt": "62a26f6975ca58ed5c4630cb7b99bd45",
    "alibaba-v2018/hour_slice.csv.gz": "fe10b0fad76ee585cdd9b9da482c541f",
    "alibaba-v2018/batch_task_mixed.csv.gz": "47ef2c824ac156157057377da9f66c09",
    "alibaba-v2018/task_usage.csv.gz": "21d969709196a6625a691a7dbe644106",
}


@dataclass(frozen=True, slots=True)
class Case:
    """The runs of one row, by seed, and what they depend on.

    `run(*arguments, seed)` returns the row; what the schedulers among the arguments decide counts,
    and `planners` by name. `files` are below the folder of public inputs. `modules` count whole:
    those that `run` finds by name only.
    """

    run: Callable[..., Mapping[str, Any]]
    arguments: tuple[Any, ...] = ()
    planners: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    def __call__(self, seed: int) -> Mapping[str, Any]:
        """Return the row of a seed."""
        return self.run(*self.arguments, seed)

    def __str__(self) -> str:
        words = [
            f"{label(each)} {each.matcher_options}{each.planner_options}{each.asker_options}"
            if isinstance(each, Preset)
            else getattr(each, "__name__", repr(each))
            for each in self.arguments
        ]
        return f"{self.run.__name__}: {', '.join(words)}".replace("{}", "").strip()

    def digest(self) -> str:
        """Return the digest of all that the case depends on."""
        parts = [
            f"edition {EDITION}",
            code_of((self.run, self.arguments)),
            *(decided(each) for each in self.arguments if isinstance(each, Preset)),
            *(f"{each} plans {planned(each)}" for each in self.planners),
            *(f"{each} is {content(each)}" for each in self.files),
            *(f"{each} is {_module(each)}" for each in self.modules),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def content(file: str) -> str:
    """Return half of SHA-256 of a public input, as it is at hand, else as it was published."""
    try:
        (path,) = public_files(file)
    except InputError:
        if file not in PUBLIC:
            raise
        return PUBLIC[file]
    return file_digest(path)[:32]


# -- code ------------------------------------------------------------------------------------------


def code_of(value: object) -> str:
    """Return a text of a value in which every function's code stands once."""
    seen: dict[str, str] = {}
    said = _told(value, seen)
    return "\n".join([said, *(f"{name}: {text}" for name, text in sorted(seen.items()))])


def _told(value: Any, seen: dict[str, str]) -> str:
    """Return a value's text; the code of functions and classes that it leads to goes to `seen`."""
    value = getattr(value, "py_func", value)
    if not isinstance(value, type):
        value = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, partial):
        return _told((value.func, value.args, value.keywords), seen)
    if isinstance(value, FunctionType | type):
        name = f"{value.__module__}.{value.__qualname__}"
        if name not in seen and value.__module__.startswith(FOLLOWED):
            seen[name] = ""
            seen[name] = _code(value, seen)
        return name
    if is_dataclass(value):
        inner = {each.name: getattr(value, each.name) for each in fields(value)}
        return f"{type(value).__qualname__}{_told(inner, seen)}"
    if isinstance(value, Mapping):
        pairs = [f"{_told(k, seen)}: {_told(v, seen)}" for k, v in value.items()]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, tuple | list):
        return f"({', '.join(_told(each, seen) for each in value)})"
    if isinstance(value, frozenset | set):
        return f"({', '.join(sorted(_told(each, seen) for each in value))})"
    if isinstance(value, str | int | float | bool | None | Path):
        return repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _code(what: FunctionType | type, seen: dict[str, str]) -> str:
    """Return the code of a function or class with the values of the globals that it names."""
    module = inspect.getmodule(what)
    known = vars(module) if module else {}
    text, names = _source(what)
    values = {
        name: _told(known[name], seen)
        for name in names
        if name in known and not inspect.ismodule(known[name])
    }
    return f"{text} with {values}"


@cache
def _source(what: FunctionType | type) -> tuple[str, list[str]]:
    """Return the code of a function or class, and the names in it."""
    text = plain(textwrap.dedent(inspect.getsource(what)))
    return text, sorted({n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)})


def plain(source: str) -> str:
    """Return a source without comments, docstrings and layout: those change no row."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and _documented(node):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _documented(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def _module(name: str) -> str:
    spec = find_spec(name)
    return plain(Path(str(spec and spec.origin)).read_text())


# -- canonical runs --------------------------------------------------------------------------------

NAMES = ("cpu", "memory", "r3", "r4", "r5", "r6")
TYPES = ResourceTypes(
    tuple(ResourceType(n, Kind.RIGID if n == "memory" else Kind.DIVISIBLE) for n in NAMES)
)
JOBS, MACHINES = 10, 3
HALVES = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))
WINDOW_S = 60.0


def canonical_jobs(queues: str) -> list[Job]:
    """Return jobs that compete, of every kind of edge, one after another to each queue."""
    rng = np.random.default_rng(2016)
    jobs = []
    for number in range(JOBS):
        stages: list[Stage] = []
        for place in range(int(rng.integers(2, 7))):
            demand = {n: round(float(rng.uniform(0.02, 0.45) ** 1.5), 3) for n in NAMES}
            tasks, duration_s = int(rng.integers(1, 9)), round(float(rng.uniform(4, 60)), 1)
            kinds = (EdgeKind.ALL_TO_ALL, EdgeKind.ONE_TO_ONE, EdgeKind.BROADCAST)
            parents = tuple(
                Edge(f"s{parent}", kinds[int(rng.integers(3))])
                for parent in range(place)
                if rng.random() < 0.45
            )
            stages.append(Stage(f"s{place}", tasks, duration_s, demand, parents))
        queue = queues[number % len(queues)] if queues else "default"
        arrival_s = round(float(number // 2 * rng.uniform(10, 20)), 1)
        jobs.append(Job(f"j{number}", tuple(stages), arrival_s=arrival_s, queue=queue))
    return jobs


def _machines(queues: QueueSpec) -> ClusterSpec:
    nodes = tuple(NodeSpec(f"n{i}", (1.0,) * len(NAMES)) for i in range(MACHINES))
    return ClusterSpec(TYPES, nodes, queues)


_DECIDED: dict[str, str] = {}


def decided(scheduler: Preset) -> str:
    """Return a digest of what a scheduler decides in two canonical runs, and what is measured.

    One has right estimates, the other wrong ones and two queues.
    """
    if (name := repr(scheduler)) in _DECIDED:
        return _DECIDED[name]
    found = hashlib.sha256()
    for seed, queues in enumerate(("", "ab")):
        jobs = canonical_jobs(queues)
        if queues:
            jobs = misestimate(jobs, -0.3, 0.3, seed)
        cluster = _machines(HALVES if queues else DEFAULT_QUEUES)
        recorder = Recorder()
        with quiet_collector():
            settings = SimSettings(scheduler, seed)
            Simulation(cluster, jobs, settings, recorder).run()
        run = Run(cluster, recorder.jobs, recorder.columns())
        times = [round(float(jct_s(row)), 3) for row in run.jobs]
        jain = jain_index(run, WINDOW_S, dominant_shares(run))
        use = {name: round(value, 6) for name, value in utilisation(run).items()}
        found.update(f"{recorder.digest()} {times} {jain:.6f} {use}".encode())
    _DECIDED[name] = found.hexdigest()[:16]
    return _DECIDED[name]


@cache
def planned(name: str) -> str:
    """Return a digest of a planner's plans of the canonical jobs, with their bounds."""
    found = hashlib.sha256()
    for job in canonical_jobs(""):
        dag = dag_of_job(job, TYPES)
        machines = Machines.alike(MACHINES, [1.0] * len(NAMES))
        plan = planner(name)(PlanRequest(dag, machines, np.random.default_rng(0), {}))
        bounds = [round(each, 6) for each in bounds_of(dag, machines).as_dict().values()]
        found.update(f"{plan.machine.tolist()} {plan.start_s.round(6).tolist()} {bounds}".encode())
    return found.hexdigest()[:16]
