"""`weft simulate` and `weft compare`: one run in virtual time, and several runs side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from lab.simulate_options import simulate_options
from weft.client.show import Column, echo_json, safe, table
from weft.client.tables import say
from weft.model.extras import require
from weft.policies.parameters import split_settings


@click.command()
@simulate_options
def simulate(
    workload: tuple[str, ...],
    options: tuple[str, ...],
    format_: str,
    as_json: bool,
    plays: bool,
    **rest: Any,
) -> None:
    """Run a workload on a cluster in virtual time."""
    chosen = split_settings(options)
    # This imports numba and more, so it waits for the call.
    from sim.process.command import main_simulate
    from sim.request import Request

    request = Request(workload=workload, format=format_, options=chosen, **rest)
    if request.report:
        require("matplotlib", "plot", "--report")
    played = []
    if plays:
        from lab.play.runs import simulate_run

        run, summary = simulate_run(request, _warn, progress=not as_json)
        played.append(run)
    else:
        summary = main_simulate(request, progress=not as_json, warn=_warn)
    if request.report:
        from lab.report.html import write_report

        write_report([Path(request.out)])
    if as_json:
        echo_json(summary)
    else:
        _show([(summary["scheduler"], summary)])
        say(f"pace {request.pace}: {PACES[request.pace]}", dim=True)
        if told := _unfinished(summary["states"]):
            from lab.report.comparing import why_failed

            hint = why_failed(request.estimate_error)
            click.echo(f"jobs that did not succeed: {told}{hint}", err=True)
    if played:
        from lab.play.server import serve_runs

        serve_runs(played)


PACES = {
    "yarn": "all moves on heartbeats of 1 s; live clusters run at --pace prompt by default",
    "prompt": "all moves at once, as live clusters do by default",
}


def _warn(text: str) -> None:
    click.echo(f"note: {text}", err=True)


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...")
@click.option(
    "--common",
    is_flag=True,
    help="Rank by the jobs that succeeded in both, where runs finished different work.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the distributions (.svg, .png, .pdf).",
)
@click.option("--json", "as_json", is_flag=True, help="Print data, not a table.")
def compare(folders: tuple[str, ...], common: bool, plot: Path | None, as_json: bool) -> None:
    """Compare runs side by side; gaps are against the first: positive is faster.

    Runs that finished different work are shown and not ranked: one whose jobs died looks fast.
    """
    from lab.report.comparing import PERCENTILES, differs, gains, read_runs

    if plot is not None:
        require("matplotlib", "plot", "--plot")
    runs = read_runs(map(Path, folders))
    first = runs[0]
    found = {folder: gains(first, run, common) for folder, run in zip(folders, runs, strict=True)}
    del found[folders[0]]
    if plot is not None:
        from lab.report.plots import plot_compare

        plot_compare(runs, plot)
    if as_json:
        echo_json(
            {
                "runs": {f: _short(r.summary) for f, r in zip(folders, runs, strict=True)},
                "gaps": found,
            }
        )
        return
    _show([(run.name, run.summary) for run in runs], [differs(first, run) for run in runs])
    if not found:
        return
    click.echo()
    name = safe(first.name)
    say(f"job by job, (JCT of {name} - JCT) / JCT of {name}, %")
    rows: list[tuple[object, ...]] = []
    for folder, gap in found.items():
        cells = [_percent(gap[f"p{p}"]) for p in PERCENTILES]
        rows.append((Path(folder).name, gap["jobs"], *cells, gap["why"] or "same work"))
    columns: list[str | Column] = [
        Column("run", kind="name"),
        "jobs",
        *(f"p{p}" for p in PERCENTILES),
        Column("finished", kind="words"),
    ]
    table(columns, rows)


def _percent(value: float | None) -> object:
    return "-" if value is None else round(value * 100, 1)


def _unfinished(states: dict[str, int]) -> str:
    bad = {state: n for state, n in states.items() if state not in ("SUCCEEDED", "FINISHED")}
    return ", ".join(f"{n:,} {state}" for state, n in bad.items())


def _short(summary: dict[str, Any]) -> dict[str, Any]:
    from sim.process.outputs import SERIES

    return {key: value for key, value in summary.items() if key not in SERIES}


def _show(runs: list[tuple[str, dict[str, Any]]], notes: Sequence[str] = ()) -> None:
    from lab.report.comparing import ranked
    from weft.results.ends import succeeded

    rows: list[tuple[object, ...]] = []
    for name, s in runs:
        jct, jain = s["jct_s"], s["jain"]
        busiest = max(s["utilisation"], key=s["utilisation"].get, default="")
        used = f"{busiest} {s['utilisation'].get(busiest, 0.0):.0%}"
        good = succeeded(s)
        windows = [jain.get(window) for window in ("10", "60", "240")]
        # no job that succeeded has no completion time: 0.0 would look like the fastest run
        times = [jct[key] if good else "-" for key in ("mean", "p50", "p95")]
        rows.append(
            (
                name,
                f"{good:,}/{s['jobs']:,}",
                s["tasks"],
                s["makespan_s"],
                *times,
                *("-" if each is None else f"{each:.2f}" for each in windows),
                used,
                s["wall_s"],
                s["digest"][:8],
            )
        )
    columns = [
        Column("run", kind="name"),
        Column("succeeded"),
        Column("tasks", 6),
        Column("makespan s"),
        Column("JCT s"),
        Column("p50", 5),
        Column("p95", 3),
        Column("Jain 10 s", 7),
        Column("60 s", 8),
        Column("240 s", 9),
        Column("busiest", 4),
        Column("wall s", 10),
        Column("digest", 2),
    ]
    if any(notes):
        columns.append(Column("ranked", 1, kind="words"))
        rows = [(*row, ranked(note)) for row, note in zip(rows, notes, strict=True)]
    table(columns, rows)


commands: list[click.Command] = [simulate, compare]
