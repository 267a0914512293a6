"""`weft analyse`: the thesis's figures of Alibaba's trace, over a trace of any size."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from weft.client.show import echo_json, table
from weft.model.errors import InputError


@click.command()
@click.argument("trace", nargs=-1, required=True)
@click.option("--figure", default="", metavar="NUMBER", help="Only this one, as 2.5.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for a table (CSV) and picture each."
)
@click.option("--machines", default=4023, show_default=True, type=click.IntRange(min=1))
@click.option("--cores", default=96.0, show_default=True, help="Of a machine.")
@click.option("--job", default="", help="Of figure 2.11; default: the one with the largest task.")
@click.option("--connect", default="", metavar="URL", help="Ibis URL; TRACE names its tables.")
@click.option("--memory-mb", default=700, show_default=True, type=click.IntRange(min=100))
@click.option("--json", "as_json", is_flag=True, help="Print data, not a table.")
def analyse(
    trace: tuple[str, ...],
    figure: str,
    out: Path | None,
    machines: int,
    cores: float,
    job: str,
    connect: str,
    memory_mb: int,
    as_json: bool,
) -> None:
    """Make figures 2.1 to 2.12 of the thesis on Alibaba 2018 from a trace.

    TRACE: files of batch_instance, batch_task or a derived form, CSV (gzipped or not) or Parquet.
    What a figure needs and the trace lacks is reported, and the figure refused.
    """
    from lab.analysis.figures import FIGURES, Facts, Options
    from lab.analysis.files import clear_errors
    from lab.analysis.tables import open_trace

    if not machines > 0 or not cores > 0:
        raise InputError("--cores", f"expected a positive number, got {cores:g}")
    wanted = [each for each in FIGURES if figure in ("", each.number)]
    if not wanted:
        known = ", ".join(each.number for each in FIGURES)
        raise InputError("--figure", f"unknown figure {figure!r}; known: {known}")
    facts = Facts(open_trace(trace, connect, memory_mb), Options(machines, cores, job))
    with clear_errors(", ".join(trace)):
        _say_left_out(facts.trace.used())
    found: dict[str, Any] = {}
    shown: list[tuple[Any, ...]] = []
    for each in wanted:
        lacks = each.missing(facts.trace)
        if lacks:
            found[each.number] = {"title": each.title, "refused": lacks}
            shown.append((each.number, each.title, "refused", f"needs {lacks}"))
            continue
        began_s = time.perf_counter()
        with clear_errors(f"figure {each.number}"):
            rows = each.make(facts).execute()
        took_s = time.perf_counter() - began_s
        # JSON has no NaN.
        known = rows.astype(object).where(rows.notna(), None)
        found[each.number] = {"title": each.title, "rows": known.to_dict("records")}
        shown.append((each.number, each.title, f"{len(rows)} rows, {took_s:.1f} s", _told(rows)))
        if out is not None:
            _write(each, rows, out)
    if as_json:
        echo_json(found)
    else:
        table(("figure", "what", "made", "begins"), shown)


def _say_left_out(used: Mapping[str, tuple[int, int]]) -> None:
    """Print how many rows are not used; raises InputError where none is."""
    for form, (count, rows) in used.items():
        why = "status Terminated, start before end, amounts that are numbers from 0 on"
        if not count:
            raise InputError(form, f"none of {rows:,} rows can be used: that needs {why}")
        if count < rows:
            click.echo(
                f"{form}: {rows - count:,} of {rows:,} rows left out, without {why}", err=True
            )


def _write(each: Any, rows: Any, out: Path) -> None:
    from lab.analysis.pictures import draw

    out.mkdir(parents=True, exist_ok=True)
    rows.to_csv(out / f"figure-{each.number}.csv", index=False)
    draw(each, rows, out / f"figure-{each.number}.svg")


def _told(rows: Any) -> str:
    """Return the first rows, in short."""
    texts = []
    for row in rows.head(3).to_dict("records"):
        cells = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values())
        texts.append(" ".join(cells))
    return "; ".join(texts)


commands: list[click.Command] = [analyse]
