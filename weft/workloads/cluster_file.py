"""The `--cluster` argument: a cluster file (JSON, YAML), a trace's list of nodes, or short."""

import json
from pathlib import Path

from weft.model.cluster import ClusterSpec, cluster_from_dict, cluster_from_text
from weft.model.errors import InputError
from weft.workloads.documents import plain_name
from weft.workloads.node_lists import load_node_list

BYTES_MAX = 64 * 1024 * 1024


def load_cluster(argument: str) -> ClusterSpec:
    """Read a cluster file, or the short form where no such file exists; raises InputError."""
    path = Path(argument)
    looks_like_file = path.suffix in {".yaml", ".yml", ".json", ".csv"} or "/" in argument
    try:
        if not looks_like_file and not path.is_file():
            return cluster_from_text(argument)
        large = path.stat().st_size > BYTES_MAX
        if not large and plain_name(path).endswith(".csv"):
            return load_node_list(path)
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
        return cluster_from_dict(_parse(text, argument))
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
