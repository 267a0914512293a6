"""The workload formats that can be imported, by name, and how to tell them from the content.

A format is one module with `FORMAT`, `read(sources, **options) -> Imported` and, where jobs can be
had one by one, `stream(sources, result, **options)`. Modules are loaded when they are needed.
Another package's is named by its entry point or as `module` + `:` + `read`
(`weft.policies.plugins`).
"""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.model.errors import InputError
from weft.model.job import Job
from weft.policies import plugins
from weft.workloads.documents import read_head
from weft.workloads.imported import Imported
from weft.workloads.reading import expand
from weft.workloads.spark_files import packed_head
from weft.workloads.table_rows import PARQUET_MAGIC, columns_of

FORMATS: dict[str, str] = {
    "spark": "weft.workloads.spark_log",
    "alibaba2018": "weft.workloads.alibaba2018",
    "alibaba_gpu2020": "weft.workloads.alibaba_gpu2020",
    "alibaba_gpu2023": "weft.workloads.alibaba_gpu2023",
    "azure_packing2020": "weft.workloads.azure_packing2020",
    "google2019": "weft.workloads.google2019",
    "wfformat": "weft.workloads.wfformat",
    "sls": "weft.workloads.sls",
    "tpch": "weft.workloads.tpch",
    "carbyne": "weft.workloads.carbyne",
    "psplib": "weft.workloads.psplib",
    "swf": "weft.workloads.swf",
    "weft": "weft.workloads.jobs_file",
}
AUTO = "auto"
_BATCH_TASK_LINE = re.compile(
    r"[^,]+,\d*,[^,]*,[^,]*,(Terminated|Failed|Running|Waiting|Ready|Cancelled),\d+,\d+,[^,]*,[^,]*"
)
_CARBYNE_HEADER = re.compile(r"^#.*\n\d+ \d+( [\d.]+)?[ \t\r]*$", re.MULTILINE)
# An archive of instances begins so as well.
_PSPLIB_HEAD = "jobs (incl. supersource/sink )"
# A comment of the format's header, or a job of 18 numbers.
_SWF_LINE = re.compile(r";\s*\w+:.*|\s*(-?\d+(\.\d+)?\s+){17}-?\d+(\.\d+)?\s*")
_CSV_HEADERS = (
    "job_name,task_name,",
    "job,name,instances,",
    "job_submit_s,",
    "task_name,instance_",
)
_PAI_LINE = re.compile(r"[^,]+,[^,]*,[\d.]*,(Terminated|Failed|Running|Waiting)(,[^,]*){6}")
# Some columns of its header tell each table.
_TABLES: tuple[tuple[str, frozenset[str]], ...] = (
    ("alibaba_gpu2020", frozenset({"job_name", "inst_num", "plan_gpu"})),
    ("alibaba_gpu2020", frozenset({"job_name", "inst_id", "status"})),
    ("alibaba_gpu2023", frozenset({"cpu_milli", "num_gpu", "pod_phase"})),
    ("azure_packing2020", frozenset({"vmId", "vmTypeId", "starttime"})),
    ("azure_packing2020", frozenset({"vmTypeId", "machineId", "core"})),
    ("google2019", frozenset({"time", "type", "collection_id", "collection_type"})),
)
_FILES_LOOKED_AT = 2000


def import_jobs(
    name: str, sources: Sequence[Path], options: Mapping[str, str], result: Imported
) -> Iterator[Job]:
    """Yield jobs of the sources, one by one where the format allows.

    `result` says what was not used. Raises InputError for an unknown format or option, and for
    sources that cannot be used.
    """
    if not sources:
        raise InputError("sources", "no file to read")
    reader = _reader(detect(sources) if name == AUTO else name)
    stream: Callable[..., Iterator[Job]] | None = getattr(reader, "stream", None)
    read: Callable[..., Imported] = getattr(reader, "read", reader)
    chosen = read_options(stream or read, options)
    if stream is not None:
        yield from stream(sources, result, **chosen)
        return
    answer = read(sources, **chosen)
    result.warnings.extend(answer.warnings)
    result.dropped.update(answer.dropped)
    yield from answer.jobs


def read_options(function: Callable[..., Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return options from their texts, by their defaults' types; raises InputError if unknown."""
    known = {
        key: parameter.default
        for key, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    chosen: dict[str, Any] = {}
    for key, text in given.items():
        if key not in known:
            names = ", ".join(f"{k} ({v})" for k, v in known.items()) or "none"
            raise InputError(f"--set {key}", f"unknown option; known, with defaults: {names}")
        chosen[key] = _option(known[key], text, f"--set {key}")
    return chosen


def _option(default: object, text: str, place: str) -> Any:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise InputError(place, f"expected true or false, got {text!r}")
        return text.lower() == "true"
    try:
        if isinstance(default, int):
            return int(text)
        if isinstance(default, float):
            return float(text)
    except ValueError:
        raise InputError(place, f"expected a number, got {text!r}") from None
    return text


def detect(sources: Sequence[Path]) -> str:
    """Return the format of the sources, told by their content; raises InputError if unknown.

    Looks at the first 2000 files; those that no format knows do not count.
    """
    files = expand(sources)[:_FILES_LOOKED_AT]
    found = {name: path for path in reversed(files) if (name := format_of(path))}
    if len(found) == 1:
        return next(iter(found))
    if found:
        told = ", ".join(f"{path} is {name}" for name, path in found.items())
        raise InputError("sources", f"of several formats ({told}): import them one by one")
    raise InputError(str(files[0]), f"not of a known format; name it: one of {', '.join(FORMATS)}")


def format_of(path: Path) -> str | None:
    """Return the format of one file, told by its first bytes, or None."""
    head = packed_head(path) or read_head(path)
    lines = [line for line in head[:4096].splitlines() if line.strip()]
    first = lines[0] if lines else ""
    if _PSPLIB_HEAD in head[:4096]:
        return "psplib"
    if _SWF_LINE.fullmatch(first):
        return "swf"
    if first.startswith("Avro-Json"):
        return "sls"
    if first.startswith("#") and _CARBYNE_HEADER.search(head):
        return "carbyne"
    if head.startswith("SQLite format 3\0"):
        return "azure_packing2020" if "vmTypeId" in head else None
    if found := _table_of(path, head, first):
        return found
    if first.startswith(_CSV_HEADERS) or _BATCH_TASK_LINE.fullmatch(first):
        return "alibaba2018"
    if not first.lstrip().startswith(("{", "[")):
        if re.search(r"^graphs:", head, re.MULTILINE) and "children:" in head:
            return "tpch"
        return (
            "weft" if re.search(r"^(- )?\s*(stages|master):|^jobs:", head, re.MULTILINE) else None
        )
    return _format_of_json(head, first)


def _table_of(path: Path, head: str, first: str) -> str | None:
    """Return the format of a table told by its columns; of Parquet they stand at the end."""
    if head.startswith(PARQUET_MAGIC):
        try:
            names = set(columns_of(path))
        except InputError:
            # The file is damaged, or nothing here reads Parquet.
            return None
    elif first.startswith("{"):
        names = set(re.findall(r'"(\w+)":', first))
    elif _PAI_LINE.fullmatch(first):
        return "alibaba_gpu2020"
    else:
        names = {name.strip() for name in first.split(",")}
    return next((form for form, some in _TABLES if some <= names), None)


def _format_of_json(head: str, first: str) -> str | None:
    if '"Event"' in first[:200]:
        return "spark"
    marks = (
        ("spark", ('"Event"', '"SparkListener')),
        ("wfformat", ('"schemaVersion"', '"workflow"')),
        ("tpch", ('"durations_ms"', '"stages"')),
        ("tpch", ("_maxCores_", '"num_tasks"')),
        ("sls", ('"job.tasks"', "am.type")),
        ("sls", ('"mapTasks"', '"jobID"')),
        ("sls", ('"workloads"', '"num_jobs"')),
        ("weft", ('"stages"', '"tasks"')),
        ("weft", ('"master"', '"demand"')),
    )
    for name, words in marks:
        if all(word in head for word in words):
            return name
    return None


def _reader(name: str) -> Any:
    """Return the module of a format, or the function that reads it."""
    if name in FORMATS:
        return importlib.import_module(FORMATS[name])
    if not plugins.is_outside(plugins.IMPORTERS, name):
        raise plugins.unknown(plugins.IMPORTERS, name, {**FORMATS, AUTO: ""})
    found = plugins.find(plugins.IMPORTERS, name)
    if not (callable(found) or hasattr(found, "read") or hasattr(found, "stream")):
        raise InputError(f"format {name!r}", "has neither read nor stream")
    return found
