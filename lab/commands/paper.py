"""`weft paper`: a paper's figures and tables beside what Weft finds."""

from importlib import import_module
from pathlib import Path

import click

from lab.papers.kept import Kept
from lab.papers.page import Paper, draw, text_of, write_whole

SEEDS_MAX = 1_000
PAPERS = ("graphene", "carbyne", "cobra", "alibaba")


@click.command()
@click.argument("name", type=click.Choice(PAPERS))
@click.option("--figure", default="", metavar="NUMBER", help="Only this one: `6`, `table 4`.")
@click.option(
    "--seeds",
    default=10,
    show_default=True,
    type=click.IntRange(1, SEEDS_MAX),
    metavar="N",
    help="Seeds of the runs: 0 to N - 1.",
)
@click.option(
    "--out",
    default="docs/papers",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder of the pages, their pictures and the kept runs (NAME.jsonl).",
)
@click.option("--estimate", is_flag=True, help="Only say how long the missing runs take.")
@click.option("--kept", is_flag=True, help="Run nothing: write the page from what is kept.")
def paper(name: str, figure: str, seeds: int, out: Path, estimate: bool, kept: bool) -> None:
    """Make the page of a paper: run what is missing, print and write the tables and pictures.

    Runs are kept in OUT/NAME.jsonl, so that one that was stopped goes on where it was. The
    workloads are read from $WEFT_DATA.
    """
    page = paper_of(name)
    figures = page.chosen(figure)
    rows = Kept(out / f"{name}.jsonl", seeds)
    missing = rows.missing(figures)
    cost_s = rows.cost_s(figures)
    click.echo(f"{len(missing)} runs are missing: about {cost_s:.0f} s of processor time", err=True)
    if estimate:
        return
    if missing and not kept:
        rows.run(figures, lambda done, of, key: click.echo(f"{done + 1}/{of} {key}", err=True))
    pictures = {}
    for each in page.figures:
        found = rows.rows(each)
        if each.draw is None or not next(iter(found.values())):
            continue
        pictures[each.number] = f"{name}-{each.number.replace(' ', '-')}.svg"
        draw(each, found, out / pictures[each.number])
    target = out / f"{name}.md"
    text = text_of(page, rows, pictures).encode()
    write_whole(target, lambda path: path.write_bytes(text))
    for each in figures:
        found = rows.rows(each)
        if next(iter(found.values())):
            click.echo(f"\n{each.number}: {each.title}")
            for line in each.lines(found):
                why = f"  ({line.why})" if line.why else ""
                click.echo(f"  {line.what}: paper {line.paper}, ours {line.ours}{why}")
    click.echo(f"\nwritten: {target}", err=True)


def paper_of(name: str) -> Paper:
    """Return a paper's figures by its name."""
    made: Paper = import_module(f"lab.papers.{name}").PAPER
    return made


commands: list[click.Command] = [paper]
