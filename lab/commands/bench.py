"""`weft bench WHAT`: the benchmarks that the README's figures come from."""

import sys
from importlib import import_module
from pathlib import Path

import click

from weft.client.show import echo_json

BENCHES = {
    "match": "lab.bench.match",
    "plan": "lab.bench.plan",
    "sim": "lab.bench.sim",
    "live": "lab.bench.live",
    "codec": "lab.bench.codec",
}


@click.command()
@click.argument("what", type=click.Choice(list(BENCHES)))
@click.option("--json", "as_json", is_flag=True, help="Print data, not a table.")
@click.option("--quick", is_flag=True, help="Smaller cases, for a first look.")
@click.option(
    "--psplib",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="plan: the table of resource-constrained scheduling over the instances of this folder.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 100_000),
    help="live: so many emulated nodes in one process, instead of the other cases.",
)
@click.option(
    "--case", "only", default="", metavar="TEXT", help="live: only the cases whose names hold it."
)
def bench(
    what: str, as_json: bool, quick: bool, psplib: Path | None, nodes: int | None, only: str
) -> None:
    """Measure one part: how fast it is, against a plain baseline kept beside it."""
    if sys.stderr.isatty():
        click.echo(f"running the cases of weft bench {what}: seconds to minutes ...", err=True)
    rows: list[dict[str, object]]
    if psplib is not None:
        if what != "plan":
            raise click.UsageError("--psplib goes with `weft bench plan`")
        rows = import_module("lab.studies.psplib").run(psplib, quick)
    elif nodes is not None:
        if what != "live":
            raise click.UsageError("--nodes goes with `weft bench live`")
        rows = import_module(BENCHES[what]).many_nodes(nodes, quick)
    elif only:
        if what != "live":
            raise click.UsageError("--case goes with `weft bench live`")
        rows = import_module(BENCHES[what]).run(quick, only)
    else:
        rows = import_module(BENCHES[what]).run(quick)
    if as_json:
        echo_json(rows)
        return
    from weft.client.show import table

    names = list(dict.fromkeys(name for row in rows for name in row))
    table(names, [[_told(row.get(name, "")) for name in names] for row in rows])


def _told(value: object) -> object:
    """Return a value as it was rounded: ratios and milliseconds have many digits."""
    return f"{value:,.6g}" if isinstance(value, float) else value


commands: list[click.Command] = [bench]
