"""`weft paper`: a paper's figures and tables beside what Weft finds."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click

from lab.papers.kept import Kept
from lab.papers.page import Figure, Paper, draw, text_of, write_whole

SEEDS_MAX = 1_000
PAPERS = ("graphene", "carbyne", "cobra", "alibaba")


@click.command()
@click.argument("name", type=click.Choice((*PAPERS, "all")))
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
@click.option("--stale", is_flag=True, help="Only say what is missing, and how long it takes.")
@click.option("--kept", is_flag=True, help="Run nothing: write the page from what is kept.")
def paper(name: str, figure: str, seeds: int, out: Path, stale: bool, kept: bool) -> None:
    """Make the page of a paper, or of all: run what is missing, write tables and pictures.

    Runs are kept in OUT/NAME.jsonl, so that one that was stopped goes on where it was. A row of
    code that decides otherwise than this, or of a changed checkout, counts as missing. The
    workloads are read from $WEFT_DATA.
    """
    pages = [paper_of(each) for each in (PAPERS if name == "all" else (name,))]
    figures = [page.chosen(figure) for page in pages]
    rows = [Kept(out / f"{page.name}.jsonl", seeds) for page in pages]
    if stale:
        tell_stale(pages, figures, rows, by_figure=name != "all")
        return
    for page, chosen, own in zip(pages, figures, rows, strict=True):
        make(page, chosen, own, out, kept)


def tell_stale(
    pages: Sequence[Paper],
    figures: Sequence[Sequence[Figure]],
    rows: Sequence[Kept],
    by_figure: bool,
) -> None:
    """Print what is missing by figure or by page, and last how many runs in all."""
    total = 0
    for page, chosen, own in zip(pages, figures, rows, strict=True):
        named = [(f"{page.name}, {f.number}", [f]) for f in chosen]
        for words, part in named if by_figure else [(page.name, list(chosen))]:
            wanted = {key for each in part for key in own.wanted(each)}
            missing = own.missing(part)
            cost = f", about {own.cost_s(part):.0f} s of processor time" if missing else ""
            click.echo(f"{words}: {len(missing)} of {len(wanted)} runs are missing{cost}", err=True)
        total += len(own.missing(chosen))
    click.echo(total)


def make(page: Paper, figures: Sequence[Figure], rows: Kept, out: Path, kept: bool) -> None:
    """Run what is missing of the figures, unless `kept`; write the page and print the figures."""
    missing = rows.missing(figures)
    cost_s = rows.cost_s(figures)
    click.echo(f"{len(missing)} runs are missing: about {cost_s:.0f} s of processor time", err=True)
    if missing and not kept:
        rows.run(figures, lambda done, of, key: click.echo(f"{done + 1}/{of} {key}", err=True))
    pictures = {}
    for each in page.figures:
        found = rows.rows(each)
        if each.draw is None or not next(iter(found.values())):
            continue
        pictures[each.number] = f"{page.name}-{each.number.replace(' ', '-')}.svg"
        draw(each, found, out / pictures[each.number])
    target = out / f"{page.name}.md"
    text = text_of(page, rows, pictures).encode()
    write_whole(target, lambda path: path.write_bytes(text))
    for each in figures:
        found = rows.rows(each)
        if next(iter(found.values())):
            click.echo(f"\n{each.number}: {each.title}")
            for line in each.lines(found):
                seeds = len(next(iter(found.values())))
                said = f"; {line.verdict(seeds)}" if line.verdict(seeds) else ""
                ours = line.measure.told(line.ours)
                click.echo(f"  {line.what}: paper {line.paper or '-'}, ours {ours}{said}")
    click.echo(f"\nwritten: {target}", err=True)


def paper_of(name: str) -> Paper:
    """Return a paper's figures by its name."""
    made: Paper = import_module(f"lab.papers.{name}").PAPER
    return made


commands: list[click.Command] = [paper]
