"""`weft play`: a run that is over, or two side by side, in the pages of a cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from lab.play import PORT
from weft.model.errors import InputError
from weft.policies.parameters import split_settings
from weft.policies.presets import PRESETS


@click.command()
@click.argument("runs", metavar="RUN [RUN]", nargs=-1, required=True)
@click.option(
    "--cluster", default="", help="RUN is a workload: simulate it here, now (file or short form)."
)
@click.option(
    "--scheduler",
    "schedulers",
    multiple=True,
    help=f"With --cluster; twice: both, side by side. [capacity] {' '.join(PRESETS)}",
)
@click.option(
    "--set",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="With --cluster: a parameter, as in weft simulate.",
)
@click.option("--pace", type=click.Choice(["yarn", "prompt"]), default="yarn", show_default=True)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0))
@click.option(
    "--jobs",
    "jobs_max",
    default=0,
    type=click.IntRange(min=0),
    metavar="N",
    help="With --cluster: only the first N jobs; 0: all.",
)
@click.option(
    "--port",
    default=None,
    type=click.IntRange(0, 65535),
    show_default=f"{PORT}, or a free one",
    help="Of the pages, on loopback; 0: any free one.",
)
def play(runs: tuple[str, ...], cluster: str, port: int | None, **rest: Any) -> None:
    """Watch a run: any moment, decision by decision, with who competed and by what scores.

    RUN is a folder of tapes (weft up --tape), one manager's tape, or a folder of weft simulate
    --out; two are shown side by side. With --cluster the RUNs are workload files: weft play
    jobs.jsonl --cluster 20x16vcores --scheduler capacity --scheduler graphene.
    """
    if cluster:
        played = _simulated(runs, cluster, **rest)
    elif rest["schedulers"] or rest["options"]:
        raise InputError("--scheduler", "goes with --cluster, which says that a workload is to run")
    elif len(runs) > 2:
        raise InputError("RUN", f"one run or two side by side, got {len(runs)}")
    else:
        from lab.play.runs import read_run

        played = [read_run(Path(run), _warn) for run in runs]
    from lab.play.server import serve_runs

    serve_runs(played, port)


def _simulated(
    workload: tuple[str, ...],
    cluster: str,
    schedulers: Sequence[str],
    options: tuple[str, ...],
    **rest: Any,
) -> list[Any]:
    from lab.play.runs import simulate_run
    from sim.request import Request

    chosen = list(schedulers) or ["capacity"]
    if len(chosen) > 2:
        raise InputError("--scheduler", f"one or two side by side, got {len(chosen)}")
    settings = split_settings(options)
    found = []
    for scheduler in chosen:
        request = Request(
            workload=workload, cluster=cluster, scheduler=scheduler, options=settings, **rest
        )
        found.append(simulate_run(request, _warn, progress=True)[0])
    return found


def _warn(text: str) -> None:
    click.echo(f"note: {text}", err=True)


commands: list[click.Command] = [play]
