"""`weft study`: a grid of runs, resumable, on this machine or on a Dask cluster."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from weft.client.show import Column, echo_json, table
from weft.model.extras import require
from weft.policies.presets import short_labels
from weft.results.ends import succeeded


@click.command()
@click.argument("grid", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the rows.")
@click.option(
    "--workers",
    default=2,
    show_default=True,
    type=click.IntRange(min=1),
    help="Processes of this machine.",
)
@click.option("--dask", default="", metavar="ADDRESS", help="Run on this Dask scheduler instead.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the schedulers with intervals over the seeds (.svg, .png, .pdf).",
)
@click.option("--json", "as_json", is_flag=True, help="Print data, not a table.")
def study(grid: Path, out: Path, workers: int, dask: str, plot: Path | None, as_json: bool) -> None:
    """Run every combination of a grid file that has no row yet; print all rows.

    GRID is YAML or JSON with lists: workloads, clusters, schedulers, and optionally seeds, loads,
    arrivals, estimate_errors, options (docs/formats.md). Files are found in the grid's folder, else
    in this one. A scheduler is a preset or, say, {matcher: "my_policies:Mine", options:
    {matcher.power: 2}}. Rows that finished less of the work than others are not ranked: a run whose
    jobs died looks fast.
    """
    if plot is not None:
        require("matplotlib", "plot", "--plot")
    from rich.console import Console

    from lab.report.comparing import unranked, varied
    from lab.studies.grid import read_grid, run_study
    from weft.client.progress import bars
    from weft.client.text import cut

    console = Console(stderr=True)
    with bars(console, transient=True) as shown:
        task = shown.add_task("runs", total=None, state="", visible=False)

        def told(done: int, total: int, row: dict[str, Any] | None) -> None:
            if row is None:
                shown.update(task, completed=done, total=total, visible=done < total)
                if done:
                    click.echo(f"{done} of {total} rows are there already in {out}", err=True)
                return
            options = f" {varied(row['options'])}" if row["options"] else ""
            text = f"{row['scheduler']}{options} seed {row['seed']}"
            # With a policy of another package it would not fit beside a bar.
            own = short_labels([row["scheduler"]])[row["scheduler"]]
            state = cut(f"{own}{options} seed {row['seed']}", max(16, console.width - 48))
            shown.update(task, completed=done, total=total, state=state)
            if not console.is_terminal:
                click.echo(f"{done}/{total} {text}", err=True)

        rows = run_study(read_grid(grid), out, workers, dask, told)
    notes = unranked(rows)
    if any(notes):
        click.echo(_warned(rows, notes), err=True)
    if plot is not None:
        from lab.report.plots import plot_study

        plot_study(rows, plot)
    if as_json:
        echo_json([row | {"not_ranked": note} for row, note in zip(rows, notes, strict=True)])
        return
    # What a grid varies beside these is what tells its rows apart.
    more = [
        key
        for key in ("cluster", "arrivals", "estimate_error", "options")
        if len({str(row[key]) for row in rows}) > 1
    ]
    short = short_labels(row["scheduler"] for row in rows)
    table(
        (
            Column("workload", kind="name"),
            Column("scheduler", kind="name", short=short.__getitem__),
            *(Column(key, kind="name") for key in more),
            "seed",
            "succeeded",
            Column("load", 3),
            "JCT mean s",
            Column("p50 s", 5),
            Column("p95 s", 2),
            Column("makespan s", 1),
            Column("Jain 240 s", 4),
            Column("digest", 6),
            *(["ranked"] if any(notes) else []),
        ),
        [
            (
                Path(row["workload"]).name,
                row["scheduler"],
                *(varied(row[key]) for key in more),
                row["seed"],
                f"{succeeded(row):,}/{row['jobs']:,}",
                row["load"],
                *(row["jct_s"][key] if succeeded(row) else "-" for key in ("mean", "p50", "p95")),
                row["makespan_s"],
                _index(row["jain"]["240"]),
                row["digest"][:10],
                *(["no" if note else "yes"] if any(notes) else []),
            )
            for row, note in zip(rows, notes, strict=True)
        ],
    )


def _warned(rows: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> str:
    """Return what is wrong with rows that are not ranked."""
    from lab.report.comparing import why_failed

    bad = [row for row, note in zip(rows, notes, strict=True) if note]
    hint = next(filter(None, (why_failed(row["estimate_error"]) for row in bad)), "")
    return f"note: {len(bad)} of {len(rows)} rows finished less work and are not ranked{hint}"


def _index(value: float | None) -> object:
    return "-" if value is None else f"{value:.3f}"


commands: list[click.Command] = [study]
