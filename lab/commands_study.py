"""`weft study`: a grid of runs, resumable, on this machine or on a Dask cluster."""

from pathlib import Path
from typing import Any

import click

from weft.client.show import echo_json, table


@click.command()
@click.argument("grid", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the rows.")
@click.option("--workers", default=2, show_default=True, help="Processes of this machine.")
@click.option("--dask", default="", metavar="ADDRESS", help="Run on this Dask scheduler instead.")
@click.option("--json", "as_json", is_flag=True, help="Print data, not a table.")
def study(grid: Path, out: Path, workers: int, dask: str, as_json: bool) -> None:
    """Run every combination of a grid file that has no row yet; print all rows.

    GRID is YAML or JSON with lists: workloads, clusters, schedulers, and optionally seeds, loads,
    arrivals, estimate_errors, options.
    """
    from lab.study import read_grid, run_study

    def told(done: int, total: int, row: dict[str, Any]) -> None:
        click.echo(f"{done}/{total} {row['scheduler']} seed {row['seed']}", err=True)

    rows = run_study(read_grid(grid), out, workers, dask, told)
    if as_json:
        echo_json(rows)
        return
    table(
        ("workload", "scheduler", "seed", "load", "JCT mean s", "p50 s", "p95 s", "makespan s",
         "Jain 240 s", "digest"),
        [
            (
                Path(row["workload"]).name, row["scheduler"], row["seed"], row["load"],
                row["jct_s"]["mean"], row["jct_s"]["p50"], row["jct_s"]["p95"],
                row["makespan_s"], _index(row["jain"]["240"]), row["digest"][:10],
            )
            for row in rows
        ],
    )  # fmt: skip


def _index(value: float | None) -> object:
    return "-" if value is None else round(value, 3)


commands: list[click.Command] = [study]
