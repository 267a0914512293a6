"""`python -m lab.studies.plan_study_command`: run the study of planners and print its tables."""

import dataclasses
import json
import os
import sys
from pathlib import Path

import click

from lab.studies.plan import (
    BASELINE,
    PLANNERS,
    Case,
    Row,
    against,
    cases,
    loose,
    report,
    study,
    worse,
)

_SOURCES = ("carbyne-workloads", "alibaba-v2018", "wfinstances", "spark-eventlogs", "sls")


@click.command()
@click.option("--data", default=None, type=click.Path(path_type=Path), help="Default: $WEFT_DATA.")
@click.option("--source", "sources", multiple=True, help="A folder of the data, or synth:KIND.")
@click.option(
    "--jobs", default=0, help="At most so many DAGs of each source, evenly spaced; 0: all."
)
@click.option("--tasks-max", default=5000, show_default=True, help="Leave out larger DAGs.")
@click.option("--tasks-per-machine", default=10.0, show_default=True, help="How tight it is.")
@click.option("--planner", "planners", multiple=True, help="A planner; may be repeated.")
@click.option("--iterations", default=200, show_default=True, help="Of graphene_plus.")
@click.option("--rows", type=click.Path(path_type=Path), help="Keep a line per DAG; go on there.")
@click.option("--loose", "over", type=float, help="List DAGs with Graphene over so many NewLBs.")
def main(
    data: Path | None,
    sources: tuple[str, ...],
    jobs: int,
    tasks_max: int,
    tasks_per_machine: float,
    planners: tuple[str, ...],
    iterations: int,
    rows: Path | None,
    over: float | None,
) -> None:
    """Print Graphene's table 7 over the public DAGs that carry demands."""
    folder = data or Path(os.environ.get("WEFT_DATA", "../shared/data"))
    chosen: list[Case] = []
    for source in sources or _SOURCES:
        found = list(cases(folder, source, tasks_max, tasks_per_machine))
        step = max(1.0, len(found) / jobs) if jobs else 1.0
        chosen += [found[int(i * step)] for i in range(int(len(found) / step))]
    known = _read(rows)
    options = {"graphene_plus": {"iterations": iterations}}
    done: list[Row] = []
    with click.progressbar(chosen, label="DAGs", file=sys.stderr) as bar:
        for case in bar:
            key = f"{case.dag.digest()} {case.machines.count}"
            if key not in known:
                known[key] = study(case, planners or PLANNERS, options, workers=2)
                _append(rows, known[key])
            done.append(known[key])
    click.echo(report(done))
    if {"graphene", "graphene_plus"} <= set(planners or PLANNERS):
        click.echo(f"\n{against(done, 'graphene_plus', 'graphene')}")
    if {"graphene", "critical_path"} <= set(planners or PLANNERS):
        click.echo(f"\n{worse(done, 'graphene', (BASELINE, 'critical_path'))}.")
    if over is not None:
        click.echo(f"\nGraphene over {over} x NewLB:\n\n{loose(done, 'graphene', over)}")


def _read(path: Path | None) -> dict[str, Row]:
    if path is None or not path.exists():
        return {}
    rows = [Row(**json.loads(line)) for line in path.read_text().splitlines()]
    return {f"{row.digest} {row.machines}": row for row in rows}


def _append(path: Path | None, row: Row) -> None:
    if path is not None:
        with path.open("a") as out:
            out.write(json.dumps(dataclasses.asdict(row)) + "\n")


if __name__ == "__main__":
    main()
