"""`weft simulate` and `weft compare`: one run in virtual time, and several runs side by side."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import click

from weft.client.show import echo_json, table
from weft.errors import InputError
from weft.presets import PRESETS


@click.command()
@click.argument("workload", nargs=-1, required=True)
@click.option("--cluster", required=True, help="Cluster file, or 100x16vcores,65536memory_mb.")
@click.option("--scheduler", default="capacity", show_default=True, help=" ".join(PRESETS))
@click.option("--matcher", default="", help="Exchange the preset's matcher.")
@click.option("--planner", default="", help="Exchange the preset's planner.")
@click.option("--asker", default="", help="Exchange the preset's asker.")
@click.option(
    "--set",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="A parameter: matcher.KEY, planner.KEY, asker.KEY, manager.KEY or master.KEY.",
)
@click.option("--seed", default=0, show_default=True)
@click.option("--out", default="", metavar="DIR", help="Folder for the results.")
@click.option("--format", "format_", default="auto", show_default=True, help="Format of WORKLOAD.")
@click.option("--jobs", "jobs_max", default=0, help="Only the first N jobs.")
@click.option(
    "--estimate-error",
    default="",
    metavar="LO:HI",
    help="Relative error of what schedulers are told, by stage; e.g. -0.5:0.5.",
)
@click.option(
    "--load", default=1.0, show_default=True, help="The same work on 1/LOAD of the nodes."
)
@click.option("--arrivals", default="file", show_default=True, help="file, once or poisson:RATE.")
@click.option("--checks", is_flag=True, help="Check every invariant after every event (slow).")
@click.option("--decisions", is_flag=True, help="Write DIR/decisions.jsonl.")
@click.option("--report", is_flag=True, help="Write DIR/report.html.")
@click.option("--faults", default="", metavar="F", help="Fault script, or random:SEED[:HORIZON_S].")
@click.option("--pace", type=click.Choice(["yarn", "prompt"]), default="yarn", show_default=True)
@click.option("--until", "until_s", default=math.inf, help="Stop at this virtual time, s.")
@click.option("--json", "as_json", is_flag=True, help="Print summary.json.")
def simulate(
    workload: tuple[str, ...], options: tuple[str, ...], format_: str, as_json: bool, **rest: Any
) -> None:
    """Run a workload on a cluster in virtual time."""
    if rest["report"] and not rest["out"]:
        raise InputError("--report", "needs --out DIR")
    chosen: dict[str, str] = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError("--set", f"{text!r} is not KEY=VALUE")
        chosen[key] = value
    from sim.command import Request, main_simulate  # numba and all: only when it is called

    request = Request(workload=workload, format=format_, options=chosen, **rest)
    summary = main_simulate(
        request, progress=not as_json, warn=lambda text: click.echo(f"note: {text}", err=True)
    )
    if as_json:
        echo_json(summary)
        return
    _show([(rest["scheduler"], summary)])
    unfinished = {s: n for s, n in summary["states"].items() if s != "FINISHED"}
    if unfinished:
        click.echo(f"jobs that did not finish: {unfinished}", err=True)


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...")
@click.option("--json", "as_json", is_flag=True)
def compare(folders: tuple[str, ...], as_json: bool) -> None:
    """Runs side by side; gaps are against the first: positive is faster."""
    runs = [(folder, _summary(Path(folder))) for folder in folders]
    gaps = {folder: _gaps(Path(folders[0]), Path(folder)) for folder in folders[1:]}
    if as_json:
        echo_json({"runs": {f: _short(s) for f, s in runs}, "gaps": gaps})
        return
    _show([(Path(folder).name, summary) for folder, summary in runs])
    if gaps:
        click.echo(f"\njob by job, (JCT of {Path(folders[0]).name} - JCT) / JCT of the first, %")
        names = ("p10", "p25", "p50", "p75", "p90")
        rows = [
            (Path(f).name, g["jobs"], *(round(g[n] * 100, 1) for n in names))
            for f, g in gaps.items()
        ]
        table(("run", "jobs", *names), rows)


def _summary(folder: Path) -> dict[str, Any]:
    path = folder / "summary.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {**found, "jct_s": dict(found["jct_s"]), "jain": dict(found["jain"])}
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(str(path), "is not the summary of a run") from None


def _jcts(folder: Path) -> dict[str, float]:
    path = folder / "jobs.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        found = [r for r in rows if r["state"] == "FINISHED"]
        return {f"{r['job']}:{r['name']}": float(r["jct_s"]) for r in found}
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    except (ValueError, KeyError, csv.Error):
        raise InputError(str(path), "is not the table of a run's jobs") from None


def _gaps(first: Path, other: Path) -> dict[str, float]:
    """Percentiles over jobs of the relative gain in JCT against the first run."""
    before, after = _jcts(first), _jcts(other)
    gains = sorted(
        (before[job] - after[job]) / before[job] for job in before if job in after and before[job]
    )
    found: dict[str, float] = {"jobs": len(gains)}
    for p in (10, 25, 50, 75, 90):
        found[f"p{p}"] = gains[min(len(gains) - 1, len(gains) * p // 100)] if gains else 0.0
    return found


def _short(summary: dict[str, Any]) -> dict[str, Any]:
    from sim.outputs import SERIES

    return {key: value for key, value in summary.items() if key not in SERIES}


def _show(runs: list[tuple[str, dict[str, Any]]]) -> None:
    rows: list[tuple[object, ...]] = []
    for name, s in runs:
        jct, jain = s["jct_s"], s["jain"]
        busiest = max(s["utilisation"], key=s["utilisation"].get, default="")
        used = f"{busiest} {s['utilisation'].get(busiest, 0.0):.0%}"
        rows.append((
            name, s["jobs"], s["tasks"], s["makespan_s"], jct["mean"], jct["p50"], jct["p95"],
            *(f"{jain[window]:.2f}" for window in ("10", "60", "240")), used, s["wall_s"],
            s["digest"][:8],
        ))  # fmt: skip
    columns = ("run", "jobs", "tasks", "span s", "JCT s", "p50", "p95", "Jain 10 s", "60 s",
               "240 s", "busiest", "wall s", "digest")  # fmt: skip
    table(columns, rows)


commands: list[click.Command] = [simulate, compare]
