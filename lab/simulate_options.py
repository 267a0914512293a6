"""The arguments of `weft simulate`, and the request that a command line of it makes."""

import math
import shlex
from collections.abc import Callable
from dataclasses import fields

import click

from sim.request import Request
from weft.client.scheduling import scheduler_options
from weft.policies.parameters import split_settings

_PARAMETERS = (
    click.argument("workload", nargs=-1, required=True),
    click.option("--cluster", required=True, help="Cluster file, or 100x16vcores,65536memory_mb."),
    scheduler_options,
    click.option(
        "--set",
        "options",
        multiple=True,
        metavar="KEY=VALUE",
        help="A parameter: matcher.KEY, planner.KEY, asker.KEY, manager.KEY, master.KEY, node.KEY.",
    ),
    click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0)),
    click.option("--out", default="", metavar="DIR", help="Folder for the results."),
    click.option(
        "--format", "format_", default="auto", show_default=True, help="Format of WORKLOAD."
    ),
    click.option(
        "--jobs",
        "jobs_max",
        default=0,
        type=click.IntRange(min=0),
        metavar="N",
        help="Only the first N jobs; 0: all.",
    ),
    click.option(
        "--estimate-error",
        default="",
        metavar="LO:HI",
        help="Relative error of the durations and demands that schedulers see, by stage; e.g. "
        "-0.5:0.5. Below 0, tasks whose memory is estimated too low end OUT_OF_MEMORY where a node "
        "has no more.",
    ),
    click.option(
        "--load", default=1.0, show_default=True, help="The same work on 1/LOAD of the nodes."
    ),
    click.option(
        "--arrivals", default="file", show_default=True, help="file, once or poisson:RATE."
    ),
    click.option("--checks", is_flag=True, help="Check every invariant after every event (slow)."),
    click.option("--decisions", is_flag=True, help="Write DIR/decisions.jsonl."),
    click.option("--report", is_flag=True, help="Write DIR/report.html."),
    click.option("--parquet", is_flag=True, help="Write DIR/*.parquet beside the CSV files."),
    click.option(
        "--trace", default="", metavar="FILE", help="Write a trace for Perfetto (x.perfetto.json)."
    ),
    click.option(
        "--faults", default="", metavar="F", help="Fault script, or random:SEED[:HORIZON_S]."
    ),
    click.option(
        "--pace", type=click.Choice(["yarn", "prompt"]), default="yarn", show_default=True
    ),
    click.option(
        "--members",
        default=1,
        show_default=True,
        type=click.IntRange(min=1),
        help="Divide the nodes into members of a manager each, behind a router.",
    ),
    click.option("--until", "until_s", default=math.inf, help="Stop at this virtual time, s."),
    click.option("--json", "as_json", is_flag=True, help="Print summary.json."),
    click.option("--play", "plays", is_flag=True, help="Then watch it, as with weft play."),
)


def simulate_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the arguments of `weft simulate`."""
    for parameter in reversed(_PARAMETERS):
        function = parameter(function)
    return function


def request_of(command: str) -> Request:
    """Return the request of a `weft simulate ...` command line.

    Raises click.UsageError where it is none.
    """
    parser = click.command("simulate")(simulate_options(lambda **_: None))
    given = parser.make_context("simulate", shlex.split(command)[2:]).params
    given["options"] = split_settings(given["options"])
    given["format"] = given.pop("format_")
    known = {field.name for field in fields(Request)}
    return Request(**{name: value for name, value in given.items() if name in known})
