"""The `--cluster` argument: a cluster file (JSON, YAML), a trace's list of nodes, or short.

The queues of such a file, or of YARN's, can be read alone.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from weft.model.cluster import ClusterSpec, cluster_from_dict, cluster_from_text
from weft.model.errors import InputError
from weft.model.queues import QueueSpec, queues_from_dict
from weft.model.reading import read_table
from weft.workloads.documents import plain_name
from weft.workloads.node_lists import load_node_list
from weft.workloads.yarn_config import read_yarn
from weft.workloads.yarn_properties import CAPACITY

T = TypeVar("T")
BYTES_MAX = 64 * 1024 * 1024


def load_cluster(argument: str) -> ClusterSpec:
    """Read a cluster file, or the short form where no such file exists; raises InputError."""
    path = Path(argument)
    looks_like_file = path.suffix in {".yaml", ".yml", ".json", ".csv"} or "/" in argument
    try:
        if not looks_like_file and not path.is_file():
            return cluster_from_text(argument)
        if path.stat().st_size <= BYTES_MAX and plain_name(path).endswith(".csv"):
            return load_node_list(path)
    except OSError as error:
        raise InputError(argument, error.strerror or "cannot be read") from None
    return _read(argument, cluster_from_dict)


def load_queues(argument: str, total: Mapping[str, float]) -> tuple[QueueSpec, dict[str, str]]:
    """Read the queues of a cluster file, or of YARN's files; return them and what is left out.

    A file may hold nothing but queues: `queues` or the `root` alone. `argument` may be one of
    YARN's files or their folder; amounts there are parts of `total`, what the cluster has. Raises
    InputError.
    """
    path = Path(argument)
    if path.suffix != ".xml" and not path.is_dir():
        return _read(argument, _queues_of), {}
    sources = sorted([*path.glob("*.xml"), *path.glob("*.json")]) if path.is_dir() else [path]
    found = read_yarn(sources, there=[{"capacity": dict(total)}])
    if not found.queues:
        raise InputError(argument, "names no queues")
    left_out = {name: why for name, why in found.left_out.items() if f"{CAPACITY}root" in name}
    return queues_from_dict({"root": found.queues}, argument), left_out


def _queues_of(data: object) -> QueueSpec:
    table = read_table(data, "queues")
    if "root" in table:
        return queues_from_dict(table)
    if "queues" not in table:
        raise InputError("queues", "is missing")
    return queues_from_dict(table["queues"])


def _read(argument: str, made: Callable[[object], T]) -> T:
    """Return what is made of a file's data; problems name the file."""
    path = Path(argument)
    try:
        large = path.stat().st_size > BYTES_MAX
        with path.open("rb") as file:
            # A device has no size and may have no end.
            data = file.read(BYTES_MAX + 1)
        if large or len(data) > BYTES_MAX:
            raise InputError(argument, f"a cluster file has at most {BYTES_MAX} bytes")
        text = data.decode()
    except OSError as error:
        raise InputError(argument, error.strerror or "cannot be read") from None
    except UnicodeDecodeError:
        raise InputError(argument, "is not UTF-8 text") from None
    try:
        return made(_parse(text, argument))
    except InputError as error:
        if error.place == argument:
            raise
        raise InputError(f"{argument}: {error.place}", error.problem) from None


def _parse(text: str, argument: str) -> object:
    if argument.endswith(".json"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise InputError(argument, f"is not valid JSON: {error}") from None
        except RecursionError:
            raise InputError(argument, "is nested too deeply") from None
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise InputError(argument, f"is not valid YAML: {problem}") from None
    except (RecursionError, ValueError) as error:
        raise InputError(argument, f"is not valid YAML: {error}") from None
