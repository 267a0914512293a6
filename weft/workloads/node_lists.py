"""Machines of published traces as a cluster: lists of nodes, as CSV.

Known are `openb_node_list_*.csv` of Alibaba's cluster-trace-gpu-v2023 and `pai_machine_spec.csv` of
cluster-trace-gpu-v2020, which has no header as published.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from weft.model.cluster import ClusterSpec, cluster_from_dict
from weft.model.errors import InputError
from weft.workloads.imported import Imported
from weft.workloads.table_rows import Row, amount, columns_of, needed, rows_of

OPENB = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
PAI = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
# These columns give vcores, memory_mb and gpus, each with what one of Weft's units is in it.
_UNITS: Mapping[tuple[str, ...], Mapping[str, tuple[str, float]]] = {
    OPENB: {
        "vcores": ("cpu_milli", 1000.0),
        "memory_mb": ("memory_mib", 1.0),
        "gpus": ("gpu", 1.0),
    },
    PAI: {
        "vcores": ("cap_cpu", 1.0),
        "memory_mb": ("cap_mem", 1 / 1024.0),
        "gpus": ("cap_gpu", 1.0),
    },
}


def load_node_list(path: Path) -> ClusterSpec:
    """Return a list's machines, identical ones together; raises InputError with its line."""
    columns = columns_of(path, (PAI,)) if _headless(path) else columns_of(path)
    form = next((form for form in _UNITS if set(form) <= set(columns)), None)
    if form is None:
        known = " or ".join(",".join(form) for form in _UNITS)
        raise InputError(str(path), f"is no list of nodes: expected the columns {known}")
    counts: Counter[tuple[float, ...]] = Counter()
    refused = Imported()
    for place, row in rows_of(path, refused, (form,)):
        try:
            counts[_capacity(row, form)] += 1
        except InputError as error:
            raise InputError(f"{place}: {error.place}", error.problem) from None
    if refused.warnings:
        raise InputError(str(path), refused.warnings[0])
    names = tuple(_UNITS[form])
    nodes = [
        {"count": count, "capacity": dict(zip(names, capacity, strict=True))}
        for capacity, count in sorted(counts.items())
    ]
    return cluster_from_dict({"nodes": nodes}, str(path))


def _headless(path: Path) -> bool:
    """Return whether the first line is a row: pai_machine_spec's columns, no name of any."""
    names = columns_of(path)
    return len(names) == len(PAI) and not set(names) & {*OPENB, *PAI}


def _capacity(row: Row, form: tuple[str, ...]) -> tuple[float, ...]:
    return tuple(
        needed(amount(row, column), column) / unit for column, unit in _UNITS[form].values()
    )
