"""`weft import` and `weft generate`: public workload files, or drawn jobs, into job files."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from weft.client.progress import following
from weft.client.text import plural
from weft.model.errors import InputError
from weft.model.job import Job
from weft.policies import plugins
from weft.workloads.documents import METER, Meter
from weft.workloads.imported import Imported
from weft.workloads.jobs_file import write_jobs
from weft.workloads.registry import AUTO, FORMATS, import_jobs, read_options

_WARNINGS_SHOWN = 20
_KINDS = (
    "production",
    "graphene",
    "tpcds_like",
    "tpch_like",
    "bigbench_like",
    "mapreduce",
    "builds",
    "requests",
)


@dataclass(slots=True)
class _Tally:
    """What went into the file."""

    jobs: int = 0
    stages: int = 0
    tasks: int = 0
    resources: Counter[str] = field(default_factory=Counter)

    def over(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Count jobs on their way."""
        for job in jobs:
            self.jobs += 1
            self.stages += len(job.stages)
            self.tasks += job.task_count
            self.resources.update(job.resources or job.stages[0].demand.keys())
            yield job


@contextmanager
def _metered() -> Iterator[Meter]:
    """Count what is read of workload files."""
    token = METER.set(meter := Meter())
    try:
        yield meter
    finally:
        METER.reset(token)


def _size(path: Path) -> int:
    """Return bytes of a file, or of all files of a folder; what cannot be read counts nothing."""
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    total = 0
    for file in files:
        with suppress(OSError):
            total += file.stat().st_size if file.is_file() else 0
    return total


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError("--set", f"expected key=value, got {pair!r}")
        settings[key] = value
    return settings


class _Format(click.Choice[str]):
    """One of Weft's formats, or another package's by its entry point or as `module:read`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Let names of other packages through."""
        if plugins.is_outside(plugins.IMPORTERS, str(value)):
            return str(value)
        return super().convert(value, param, ctx)


@click.command(name="import")
@click.argument("form", metavar="FORMAT", type=_Format([AUTO, *FORMATS]))
@click.argument(
    "sources", metavar="SRC...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Job file to write.")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Option of the format.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def import_command(
    form: str, sources: tuple[Path, ...], out: Path, pairs: tuple[str, ...], as_json: bool
) -> None:
    """Turn public workload files into a job file.

    FORMAT is one of those listed, or `auto`, which tells it from the content; a folder stands for
    its files. What could not be used is reported on stderr, with the number of rows dropped.
    """
    result, tally = Imported(), _Tally()
    with _metered() as meter:

        def told() -> tuple[float, str]:
            return meter.bytes / 1000, f"kB, {plural(tally.jobs, 'job')}"

        size_kb = sum(_size(path) for path in sources) / 1000
        with following(f"importing {form}", max(size_kb, 1.0), told):
            jobs = import_jobs(form, sources, _settings(pairs), result)
            write_jobs(out, tally.over(jobs))
    _report(out, tally, result, as_json)


@click.command(name="generate")
@click.argument("kind", type=click.Choice(_KINDS))
@click.option(
    "--jobs", default=100, show_default=True, type=click.IntRange(min=1), help="How many."
)
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of the draw."
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Job file to write.")
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="arrivals=poisson|swim|together, interarrival_s=20, spread=0 (of the true durations).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def generate_command(
    kind: str, jobs: int, seed: int, out: Path, pairs: tuple[str, ...], as_json: bool
) -> None:
    """Draw a synthetic workload whose structure follows published production marginals."""
    import numpy as np

    from weft.workloads.synth import generate

    options = read_options(generate, _settings(pairs))
    drawn = generate(kind, jobs, np.random.default_rng(seed), **options)
    tally = _Tally()
    with following(f"generating {kind}", jobs, lambda: (tally.jobs, "jobs")):
        write_jobs(out, tally.over(drawn))
    _report(out, tally, Imported(), as_json)


def _report(out: Path, tally: _Tally, result: Imported, as_json: bool) -> None:
    """Print the summary to stdout, warnings and dropped rows to stderr (or all of it as JSON)."""
    dropped = {reason: count for reason, count in result.dropped.items() if count}
    if as_json:
        summary = {
            "out": str(out),
            "jobs": tally.jobs,
            "stages": tally.stages,
            "tasks": tally.tasks,
            "resources": sorted(tally.resources),
            "warnings": result.warnings,
            "dropped": dropped,
        }
        click.echo(json.dumps(summary))
        return
    for warning in result.warnings[:_WARNINGS_SHOWN]:
        click.echo(f"warning: {warning}", err=True)
    if len(result.warnings) > _WARNINGS_SHOWN:
        more = len(result.warnings) - _WARNINGS_SHOWN
        click.echo(f"warning: and {more} more (--json lists them all)", err=True)
    for reason, count in dropped.items():
        click.echo(f"dropped: {count:,} x {reason}", err=True)
    click.echo(
        f"{out}: {plural(tally.jobs, 'job')}, {plural(tally.stages, 'stage')}, "
        f"{plural(tally.tasks, 'task')}; "
        f"resources: {', '.join(sorted(tally.resources))}"
    )


@click.command(name="export")
@click.argument("form", metavar="FORMAT", type=click.Choice(["swf", "wfformat"]))
@click.argument(
    "sources", metavar="WORKLOAD...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="swf: file to write. wfformat: folder, in which each job is a file.",
)
@click.option(
    "--run",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="swf: folder of a simulation of this workload; its waits and run times are written.",
)
def export_command(form: str, sources: tuple[Path, ...], out: Path, run: Path | None) -> None:
    """Turn a workload into the format of other simulators.

    `swf` is the Standard Workload Format, a line a stage; `wfformat` is that of WfCommons. WORKLOAD
    is what `weft simulate` takes. What the format cannot say is counted on stderr.
    """
    from weft.workloads.exporting import spans_of, write_swf, write_wfformat

    if run is not None and form != "swf":
        raise InputError("--run", "goes with swf: WfFormat here says a job, not a run of it")
    result, tally = Imported(), _Tally()
    jobs = tally.over(import_jobs(AUTO, sources, {}, result))
    if form == "swf":
        lost = write_swf(out, jobs, spans_of(run) if run is not None else {})
    else:
        lost = write_wfformat(out, jobs)
    for what, count in lost.items():
        click.echo(f"warning: {form} cannot say {what}: {count:,}", err=True)
    _report(out, tally, result, as_json=False)


commands: list[click.Command] = [import_command, export_command, generate_command]
