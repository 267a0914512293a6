"""TPC-H on Spark: measured task durations by query, data size and number of executors.

Two published forms are read: one JSON file a query with the durations of every task in several
runs (Decima, SIGCOMM 2019), and profiles with the average of each stage, whose DAGs stand in a
`queries.yaml` beside them. Neither has demands: each task is given one core and the stated memory.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from weft.model.errors import InputError
from weft.model.job import Edge, Job, Stage
from weft.model.resources import read_amount
from weft.workloads.documents import load_document, plain_name
from weft.workloads.imported import Imported
from weft.workloads.reading import each_file, expand, gather, items, table, task_count

FORMAT = "tpch"
_RUN_NAME = re.compile(r"tpch_q(\d+)_([0-9]+)g_maxCores_(\d+)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)g")
_MB_PER_GB = 1024


@dataclass(frozen=True, slots=True)
class _Choice:
    """The options: which run, how its tasks become an estimate, and what a task demands."""

    executors: int
    middle: Callable[[Sequence[float]], float]
    demand: dict[str, float]


def stream(
    sources: Sequence[Path],
    result: Imported,
    *,
    executors: int = 50,
    estimate: str = "mean",
    vcores: float = 1.0,
    memory_mb: float = 4096.0,
) -> Iterator[Job]:
    """Yield jobs of query files and profiles.

    `executors` chooses the run whose durations are used (the nearest one that there is);
    `estimate` is `mean` or `median` of a stage's tasks, as schedulers are told it;
    `vcores` and `memory_mb` are the demand of each task, which the files do not give.
    """
    if estimate not in ("mean", "median"):
        raise InputError("estimate", f"expected mean or median, got {estimate!r}")
    if executors < 1:
        raise InputError("executors", f"expected a count of executors, got {executors}")
    demand = {
        "vcores": read_amount(vcores, "vcores"),
        "memory_mb": read_amount(memory_mb, "memory_mb"),
    }
    choice = _Choice(executors, fmean if estimate == "mean" else median, demand)
    result.warnings.append(
        f"tpch files give no demands: each task is given {vcores:g} vcores and {memory_mb:g} MB "
        "(options vcores, memory_mb)"
    )
    files = expand(sources)
    graphs = [path for path in files if plain_name(path).endswith((".yaml", ".yml"))]
    documents = [path for path in files if path not in graphs] or files

    def parse(path: Path) -> list[Job]:
        data = table(load_document(path), str(path))
        if "stages" in data:
            return [_query(data, str(path), result, choice)]
        if any(_RUN_NAME.fullmatch(key) for key in data):
            return _profiles(data, path, graphs, result, choice)
        raise InputError(str(path), "neither a query file nor profiles of TPC-H runs")

    yield from each_file(documents, result, parse)


def read(sources: Sequence[Path], **options: Any) -> Imported:
    """Return TPC-H runs; options as of `stream`; raises InputError if no job is usable."""
    return gather(stream, sources, options)


def _query(
    data: dict[str, Any],
    place: str,
    result: Imported,
    choice: _Choice,
) -> Job:
    if data.get("duration_unit") != "ms":
        raise InputError(f"{place}: duration_unit", f"expected ms, got {data.get('duration_unit')}")
    size, query = str(data.get("size", "")), data.get("query")
    if not isinstance(query, int) or isinstance(query, bool):
        raise InputError(f"{place}: query", f"expected the number of the query, got {query!r}")
    rows = [
        table(row, f"{place}: stages[{i}]")
        for i, row in enumerate(items(data["stages"], f"{place}: stages"))
    ]
    run = _nearest(_runs(rows, place), choice.executors)
    if run != choice.executors:
        result.warnings.append(f"{place}: no run with {choice.executors} executors, {run} is used")
    stages = []
    for position, row in enumerate(rows):
        where = f"{place}: stages[{position}]"
        if row.get("index") != position:
            raise InputError(f"{where}.index", f"expected {position}, got {row.get('index')!r}")
        durations_s = _durations_s(row, run, where)
        if len(durations_s) != row.get("num_tasks"):
            result.warnings.append(
                f"{where}: {row.get('num_tasks')} tasks are stated, the run with {run} executors "
                f"has {len(durations_s)}, which are used"
            )
        stages.append(
            Stage(
                f"stage{position}",
                len(durations_s),
                choice.middle(durations_s),
                choice.demand,
                _parents(row, rows, position, where),
                actual_duration_s=durations_s,
            )
        )
    return _job(f"tpch-{size}-q{query:02d}", query, size, stages)


def _runs(rows: list[dict[str, Any]], place: str) -> list[int]:
    """Return the executor counts for which every stage has a task."""
    common: set[int] | None = None
    for i, row in enumerate(rows):
        runs = table(row.get("durations_ms"), f"{place}: stages[{i}].durations_ms")
        present = set()
        for key, run in runs.items():
            if not re.fullmatch(r"\d{1,9}", key):
                where = f"{place}: stages[{i}].durations_ms"
                raise InputError(where, f"expected executor counts as keys, got {key!r}")
            if isinstance(run, dict) and (run.get("first_wave") or run.get("rest_wave")):
                present.add(int(key))
        common = present if common is None else common & present
    if not common:
        raise InputError(place, "no run has durations for every stage")
    return sorted(common)


def _nearest(runs: list[int], executors: int) -> int:
    return min(runs, key=lambda run: (abs(run - executors), run))


def _durations_s(row: dict[str, Any], run: int, where: str) -> tuple[float, ...]:
    """Return tasks of a run: first wave and rest; the fresh ones are part of the first wave."""
    waves = row["durations_ms"][str(run)]
    durations_s = []
    for name in ("first_wave", "rest_wave"):
        place = f"{where}.durations_ms.{run}.{name}"
        for i, value in enumerate(items(waves.get(name), place)):
            durations_s.append(read_amount(value, f"{place}[{i}]") / 1000)
    return tuple(durations_s)


def _parents(
    row: dict[str, Any], rows: list[dict[str, Any]], position: int, where: str
) -> tuple[Edge, ...]:
    edges = []
    for parent in items(row.get("parents"), f"{where}.parents"):
        if isinstance(parent, bool) or not isinstance(parent, int) or not 0 <= parent < len(rows):
            raise InputError(f"{where}.parents", f"names stage {parent!r}, which does not exist")
        if position not in items(rows[parent].get("children"), f"{where}.children"):
            raise InputError(
                f"{where}.parents", f"names stage {parent}, whose children do not name {position}"
            )
        edges.append(Edge(f"stage{parent}"))
    return tuple(edges)


def _job(name: str, query: int, size: str, stages: list[Stage]) -> Job:
    match = _SIZE.fullmatch(size)
    return Job(
        name,
        tuple(stages),
        history_key=f"tpch-q{query:02d}",
        input_mb=float(match[1]) * _MB_PER_GB if match else 0.0,
    )


def _profiles(
    data: dict[str, Any],
    path: Path,
    graphs: list[Path],
    result: Imported,
    choice: _Choice,
) -> list[Job]:
    """Return a job for each query and size: the run whose maxCores is nearest to the wanted one."""
    beside = path.parent / "queries.yaml"
    if not graphs and not beside.is_file():
        raise InputError(str(path), "profiles need queries.yaml (the DAGs) among the sources")
    parents = _graphs((graphs or [beside])[0])
    runs: dict[tuple[int, str], dict[int, Any]] = {}
    for key, rows in data.items():
        match = _RUN_NAME.fullmatch(key)
        if match is None:
            result.dropped["profile with an unknown name"] += 1
            result.warnings.append(f"{path}: {key!r} is not tpch_q<q>_<size>g_maxCores_<c>")
            continue
        runs.setdefault((int(match[1]), f"{match[2]}g"), {})[int(match[3])] = rows
    result.warnings.append(f"{path}: profiles give the average duration of a stage, no task's own")
    jobs = []
    for (query, size), by_cores in runs.items():
        run = _nearest(sorted(by_cores), choice.executors)
        result.dropped["run with another executor count"] += len(by_cores) - 1
        key = f"tpch_q{query}_{size}_maxCores_{run}"
        place = f"{path}: {key}"
        if run != choice.executors:
            result.warnings.append(f"{place}: used, as there is no run with {choice.executors}")
        if query not in parents:
            raise InputError(place, f"the DAG of query {query} is not in queries.yaml")
        stages = _profile_stages(by_cores[run], parents[query], place, choice.demand)
        jobs.append(_job(f"tpch-{size}-q{query:02d}", query, size, stages))
    return jobs


def _profile_stages(
    rows: object, parents: dict[int, list[int]], place: str, demand: dict[str, float]
) -> list[Stage]:
    stages = []
    for i, item in enumerate(items(rows, place)):
        where = f"{place}[{i}]"
        row = table(item, where)
        number = row.get("stage_id")
        if number not in parents:
            raise InputError(f"{where}.stage_id", f"stage {number!r} is not in queries.yaml")
        stages.append(
            Stage(
                f"stage{number}",
                task_count(row.get("num_tasks"), f"{where}.num_tasks"),
                read_amount(row.get("average_runtime_ms"), f"{where}.average_runtime_ms") / 1000,
                demand,
                tuple(Edge(f"stage{parent}") for parent in parents[number]),
            )
        )
    return stages


def _graphs(path: Path) -> dict[int, dict[int, list[int]]]:
    """Return the parents of each stage by query number, from lists of children."""
    graphs: dict[int, dict[int, list[int]]] = {}
    document = table(load_document(path), str(path))
    for i, item in enumerate(items(document.get("graphs"), f"{path}: graphs")):
        place = f"{path}: graphs[{i}]"
        graph = table(item, place)
        match = re.fullmatch(r"Q(\d+)", str(graph.get("name")))
        if match is None:
            raise InputError(f"{place}.name", f"expected Q and a number, got {graph.get('name')!r}")
        rows = [table(row, f"{place}.graph") for row in items(graph.get("graph"), f"{place}.graph")]
        if not all(isinstance(row.get("name"), int) for row in rows):
            raise InputError(f"{place}.graph", "expected stage numbers as names")
        parents: dict[int, list[int]] = {row["name"]: [] for row in rows}
        for row in rows:
            for child in items(row.get("children", []), f"{place}.graph"):
                if not isinstance(child, int) or child not in parents:
                    raise InputError(f"{place}.graph", f"child {child!r} does not exist")
                parents[child].append(row["name"])
        graphs[int(match[1])] = parents
    return graphs
