"""Many runs: a grid of workload x cluster x scheduler x seed, one row a run, resumable.

The rows are appended to `rows.jsonl` as runs end; a run whose row is there is not run again, so a
study that was stopped goes on where it was. The same grid gives the same digests with any number of
workers, on this machine or on a Dask cluster.
"""

import concurrent.futures
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lab.worker_pool import WorkerPool
from sim.process.command import main_simulate, simulated
from sim.process.outputs import SERIES
from sim.process.provenance import KEYS
from sim.request import Request
from weft.client.interrupts import Interrupted
from weft.model.cluster import cluster_from_text
from weft.model.errors import InputError, WeftError
from weft.model.extras import require
from weft.model.job import Edge, Job, Stage
from weft.policies.presets import PARTS
from weft.workloads.documents import load_document

AXES = ("workload", "cluster", "scheduler", "seed")
_PARTS = {"scheduler", *PARTS, "options"}
# One of these beside another, unquoted between brackets, was a cluster in short form.
_AMOUNT = re.compile(r"(\d+x)?\d+(\.\d+)?[a-z_]+")
_KEYS = {*(f"{axis}s" for axis in AXES), "options", "estimate_errors", "loads", "arrivals"}


@dataclass(frozen=True, slots=True)
class Grid:
    """What is varied; every combination is one run."""

    workloads: tuple[str, ...]
    clusters: tuple[str, ...]
    schedulers: tuple[str | Mapping[str, Any], ...]
    seeds: tuple[int, ...] = (0,)
    options: tuple[Mapping[str, str], ...] = field(default=({},))
    estimate_errors: tuple[str, ...] = ("",)
    loads: tuple[float, ...] = (1.0,)
    arrivals: tuple[str, ...] = ("file",)

    def requests(self) -> Iterator[Request]:
        """Yield the runs in a fixed order."""
        for workload, cluster, load, arrivals, error, options, scheduler, seed in itertools.product(
            self.workloads,
            self.clusters,
            self.loads,
            self.arrivals,
            self.estimate_errors,
            self.options,
            self.schedulers,
            self.seeds,
        ):
            parts: dict[str, Any] = (
                {"scheduler": scheduler} if isinstance(scheduler, str) else {**scheduler}
            )
            yield Request(
                (workload,),
                cluster,
                options={**options, **parts.pop("options", {})},
                **parts,
                seed=seed,
                estimate_error=error,
                load=load,
                arrivals=arrivals,
            )


def read_grid(path: Path) -> Grid:
    """Read a grid file (YAML or JSON); raises InputError naming the key."""
    data = load_document(path)
    if not isinstance(data, Mapping):
        raise InputError(str(path), "expected a table of lists")
    for key, values in data.items():
        if key not in _KEYS:
            raise InputError(f"{path}: {key}", f"unknown key; known: {', '.join(sorted(_KEYS))}")
        if not isinstance(values, list) or not values:
            raise InputError(f"{path}: {key}", "expected a list of at least one value")
        _check_kinds(f"{path}: {key}", key, values)
    for key in ("workloads", "clusters", "schedulers"):
        if key not in data:
            raise InputError(f"{path}: {key}", "is needed")
    read: dict[str, Any] = {key: tuple(values) for key, values in data.items()}
    for key in ("workloads", "clusters"):
        read[key] = tuple([_beside(path, value) for value in read[key]])
    read["schedulers"] = tuple([_scheduler(path, value) for value in read["schedulers"]])
    for key, least in (("seeds", 0), ("loads", 0.0)):
        for value in data.get(key, ()):
            number = isinstance(value, int if key == "seeds" else int | float)
            if not number or isinstance(value, bool) or value < least:
                expected = "whole numbers from 0" if key == "seeds" else "numbers above 0"
                raise InputError(f"{path}: {key}", f"expected {expected}, got {value!r}")
    read["loads"] = tuple(float(v) for v in read.get("loads", (1.0,)))
    read["seeds"] = tuple(int(v) for v in read.get("seeds", (0,)))
    read["options"] = tuple(map(_texts, read.get("options", ({},))))
    return Grid(**read)


def _texts(table: Mapping[Any, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in table.items()}


def _check_kinds(place: str, key: str, values: Sequence[Any]) -> None:
    """Raise InputError where a value is not of its list's kind; others look at the rest."""
    if key in ("schedulers", "seeds", "loads"):
        return
    for value in values:
        if not isinstance(value, Mapping if key == "options" else str):
            expected = "tables of parameters" if key == "options" else "texts"
            raise InputError(place, f"expected {expected}, got {value!r}")
    if key == "clusters" and len(values) > 1 and all(map(_AMOUNT.fullmatch, values)):
        raise InputError(place, f'are these one cluster? Quote it: ["{",".join(values)}"]')


def _scheduler(grid: Path, value: Any) -> Any:
    """Return a preset's name, or the table of the parts of a scheduler."""
    place = f"{grid}: schedulers"
    if isinstance(value, str) and ":" in value:
        raise InputError(
            place, f'{value!r} is no preset: a matcher of your own is {{matcher: "{value}"}}'
        )
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping) or not set(value) <= _PARTS:
        known = ", ".join(sorted(_PARTS))
        raise InputError(place, f"expected a preset or a table of {known}, got {value!r}")
    options = value.get("options", {})
    if not isinstance(options, Mapping):
        raise InputError(place, f"expected options as a table of parameters, got {options!r}")
    parts = {key: str(name) for key, name in value.items() if key != "options"}
    return {**parts, "options": _texts(options)} if options else parts


def _beside(grid: Path, value: Any) -> Any:
    """Return a file that a grid names, found in the grid's folder first; what is none, as it is."""
    if isinstance(value, str) and (found := grid.parent / value).is_file():
        return str(found)
    return value


def key_of(request: Request) -> str:
    """Return a run's name: equal requests on equal workloads share it."""
    data = asdict(request)
    # Files written beside change no row.
    for output in ("parquet", "trace"):
        del data[output]
    data["workload_digests"] = [_digest(Path(path)) for path in request.workload]
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:20]


def run_one(request: Request) -> dict[str, Any]:
    """Return one run's row: what was varied and the summary, without the series over time."""
    summary = main_simulate(request)
    row = {
        "workload": ",".join(request.workload),
        "cluster": request.cluster,
        "scheduler": summary["scheduler"],
        "seed": request.seed,
        "options": dict(request.options),
        "estimate_error": request.estimate_error,
        "load": request.load,
        "arrivals": request.arrivals,
    }
    rest = {k: v for k, v in summary.items() if k not in (*SERIES, *KEYS, "scheduler", "seed")}
    what = {k: summary[k] for k in KEYS}
    return {"key": key_of(request), **row, **rest, "run": what}


def run_study(
    grid: Grid,
    folder: Path,
    workers: int = 2,
    dask: str = "",
    told: Callable[[int, int, dict[str, Any] | None], None] = lambda done, total, row: None,
) -> list[dict[str, Any]]:
    """Run what is missing and return all rows in the grid's order; `told` hears of each new row.

    Before, it hears how many are there already, with None for a row.

    `dask` is the address of a Dask scheduler; else a pool of `workers` processes is used. Raises
    WeftError when a run fails, Interrupted at a Ctrl-C; rows that were written stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.jsonl"
    requests = {key_of(request): request for request in grid.requests()}
    known = {row["key"]: row for row in read_rows(path) if row["key"] in requests}
    missing = {key: request for key, request in requests.items() if key not in known}
    told(len(known), len(requests), None)
    run = _on_dask(dask) if dask else _on_pool(workers)
    try:
        if not dask:
            load_kernels(missing.values())
        with path.open("a", encoding="utf-8") as file:
            for row in run(list(missing.values())):
                known[row["key"]] = row
                file.write(json.dumps(row, sort_keys=True) + "\n")
                file.flush()
                told(len(known), len(requests), row)
    except KeyboardInterrupt:
        kept = f"{len(known)} of {len(requests)} rows are kept in {folder}"
        raise Interrupted(f"{kept}; the same command goes on") from None
    return _told_apart({key: (request, known[key]) for key, request in requests.items()})


def _told_apart(found: Mapping[str, tuple[Request, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the rows: schedulers that share a name, as one with a preset's parts, as given."""
    given: dict[tuple[str, str], set[str]] = {}
    names = {
        key: "+".join(filter(None, (r.scheduler, r.matcher, r.planner, r.asker)))
        for key, (r, _) in found.items()
    }
    for key, (_, row) in found.items():
        given.setdefault((row["scheduler"], str(row["options"])), set()).add(names[key])
    return [
        row | {"scheduler": names[key]}
        if len(given[row["scheduler"], str(row["options"])]) > 1
        else row
        for key, (_, row) in found.items()
    ]


def load_kernels(requests: Iterable[Request]) -> None:
    """Have the kernels of the schedulers on the disk before anybody needs them.

    So they are compiled once, not by every process, and no run's time is theirs.
    """
    need = {"vcores": 1.0, "memory_mb": 512.0}
    stages = (Stage("a", 3, 1.0, need), Stage("b", 2, 1.0, need, (Edge("a"),)))
    cluster = cluster_from_text("2x2vcores,2048memory_mb")
    first = {(one.scheduler, one.matcher, one.planner, one.asker): one for one in requests}
    for one in first.values():
        tiny = replace(one, workload=(), load=1.0, arrivals="file", estimate_error="", faults="")
        simulated(tiny, cluster=cluster, jobs=(Job("tiny", stages), Job("other", stages)))


Runner = Callable[[Sequence[Request]], Iterator[dict[str, Any]]]


def _on_pool(workers: int) -> Runner:
    def run(requests: Sequence[Request]) -> Iterator[dict[str, Any]]:
        if workers <= 1 or len(requests) <= 1:
            yield from map(run_one, requests)
            return
        with WorkerPool(workers) as pool:
            futures = [pool.submit(run_one, request) for request in requests]
            for future in concurrent.futures.as_completed(futures):
                yield future.result()

    return run


def _on_dask(address: str) -> Runner:
    distributed = require("distributed", "dask", "--dask")

    def run(requests: Sequence[Request]) -> Iterator[dict[str, Any]]:
        try:
            client = distributed.Client(address, timeout="5s")
        except OSError as error:
            raise WeftError(f"no Dask scheduler at {address}: {error}") from None
        with client:
            futures = [client.submit(run_one, request, pure=False) for request in requests]
            for future in distributed.as_completed(futures):
                yield future.result()

    return run


def kept_rows(
    path: Path, makes: Mapping[str, Callable[[], Mapping[str, Any]]]
) -> list[dict[str, Any]]:
    """Return one row a key: those of `path` as they are, the others made and appended to it."""
    known = {row["key"]: row for row in read_rows(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for key, make in makes.items():
            if key not in known:
                known[key] = {"key": key, **make()}
                file.write(json.dumps(known[key], sort_keys=True) + "\n")
                file.flush()
    return [known[key] for key in makes]


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield rows written before; a torn line, or one that is no row, is left out."""
    if not path.exists():
        return
    for line in path.read_bytes().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("key"), str):
            yield row


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
