"""Tables that fit: columns leave by rank, ids and names become shorter, no value loses its meaning.

Into a file or a pipe everything is written, as wide as it is.
"""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import click
from rich.cells import cell_len

from weft.client.text import cut, safe, terminal_width

GAP = "  "
NAME_COLUMNS_MIN = 10
COLOURS = {
    "ALONE": "green",
    "LEADER": "green",
    "STANDBY": "cyan",
    "SUSPENDED": "yellow",
    "UNREACHABLE": "red",
    "RUNNING": "green",
    "SUCCEEDED": "green",
    "FINISHED": "green",
    "ACCEPTED": "yellow",
    "SUBMITTED": "yellow",
    "NEW": "yellow",
    "ALLOCATED": "yellow",
    "DECOMMISSIONING": "yellow",
    "UNHEALTHY": "red",
    "DRAINING": "yellow",
    "STOPPED": "magenta",
    "LOST": "red",
    "FAILED": "red",
    "OUT_OF_MEMORY": "red",
    "KILLED": "magenta",
    "DECOMMISSIONED": "bright_black",
    "REBOOTED": "bright_black",
    "SHUTDOWN": "bright_black",
    "RELEASED": "bright_black",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: those of the highest `rank` leave first, those of rank 0 never.

    `kind`: `text`; `name` may lose its middle; `state` has its colour; `id` may be told by its last
    part (`short` makes it); `words` may go over several lines.
    """

    name: str
    rank: int = 0
    kind: str = "text"
    short: Callable[[str], str] | None = None


def table(
    columns: Sequence[str | Column], rows: Iterable[Sequence[object]], title: str = ""
) -> None:
    """Print rows under column names; numbers to the right."""
    heads = [c if isinstance(c, Column) else Column(c) for c in columns]
    lines = [list(row) for row in rows]
    right = [
        bool(lines) and all(isinstance(line[i], int | float) for line in lines)
        for i in range(len(heads))
    ]
    cells = [[_cell(value) for value in line] for line in lines]
    kept, cells, widths, gone = _fit(heads, cells, terminal_width())
    if title:
        click.echo(title)
    place = {id(head): i for i, head in enumerate(heads)}
    sides = [right[place[id(head)]] for head in kept]
    names = [cut(head.name, width) for head, width in zip(kept, widths, strict=True)]
    click.echo(click.style(_line(names, widths, sides), bold=True))
    for row in cells:
        _print_row(kept, row, widths, sides)
    if gone:
        say(f"not shown at this width: {', '.join(head.name for head in gone)}", dim=True)


def say(text: str, **style: bool) -> None:
    """Print words over as many lines as the terminal needs."""
    for line in textwrap.wrap(text, terminal_width()):
        click.echo(click.style(line, **style))


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    return safe(value)


def _fit(
    heads: list[Column], cells: list[list[str]], width: int
) -> tuple[list[Column], list[list[str]], list[int], list[Column]]:
    """Return (columns kept, their cells, their widths, columns left out)."""
    kept = list(range(len(heads)))
    cells = [list(row) for row in cells]

    def widths() -> list[int]:
        return [max([cell_len(heads[i].name), *(cell_len(r[i]) for r in cells)]) for i in kept]

    def over() -> int:
        found = widths()
        return sum(found) + len(GAP) * (len(found) - 1) - width

    if over() > 0:
        for i in kept:
            short = heads[i].short
            if short is not None:
                for row in cells:
                    row[i] = short(row[i])
    _shrink(heads, cells, kept, over(), 2 * NAME_COLUMNS_MIN)
    if over() > 0:
        ranked = sorted((i for i in kept if heads[i].rank), key=lambda i: heads[i].rank)
        kept = [i for i in kept if not heads[i].rank]
        # Those that matter more come first, and a narrower one may still fit.
        for i in ranked:
            if all(row[i] == "-" for row in cells):
                continue
            whole = [row[i] for row in cells]
            kept.append(i)
            kept.sort()
            if over() > 0 and heads[i].kind == "name":
                _shrink(heads, cells, [i], over(), NAME_COLUMNS_MIN)
            if over() > 0:
                kept.remove(i)
                for row, text in zip(cells, whole, strict=True):
                    row[i] = text
    _shrink(heads, cells, kept, over(), NAME_COLUMNS_MIN)
    found = widths()
    spare = width - sum(found) - len(GAP) * (len(found) - 1)
    # Words take the width that is left.
    for place, i in enumerate(kept):
        if heads[i].kind == "words" and spare < 0:
            before = found[place]
            found[place] = max(2 * NAME_COLUMNS_MIN, before + spare)
            spare += before - found[place]
    gone = [
        head
        for i, head in enumerate(heads)
        if i not in kept and any(row[i] != "-" for row in cells)
    ]
    return [heads[i] for i in kept], [[row[i] for i in kept] for row in cells], found, gone


def _shrink(
    heads: list[Column], cells: list[list[str]], kept: list[int], over: int, least: int
) -> None:
    """Cut names, the widest column first, until nothing is over or all have `least` columns."""
    names = [i for i in kept if heads[i].kind == "name"]
    while over > 0 and names:
        wide = {i: max((cell_len(row[i]) for row in cells), default=0) for i in names}
        i = max(names, key=lambda each: wide[each])
        if wide[i] <= max(least, cell_len(heads[i].name)):
            return
        others = sorted(wide.values(), reverse=True)[1:2]
        goal = max(wide[i] - over, least, cell_len(heads[i].name), others[0] - 1 if others else 0)
        goal = min(goal, wide[i] - 1)
        for row in cells:
            row[i] = cut(row[i], goal)
        over -= wide[i] - goal


def _print_row(kept: list[Column], row: list[str], widths: list[int], sides: list[bool]) -> None:
    parts = [
        textwrap.wrap(text, width) or [""] if head.kind == "words" else [text]
        for head, text, width in zip(kept, row, widths, strict=True)
    ]
    for number in range(max(map(len, parts), default=0)):
        texts = [part[number] if number < len(part) else "" for part in parts]
        styled = [
            click.style(text, fg=COLOURS.get(text)) if head.kind == "state" and text else text
            for head, text in zip(kept, texts, strict=True)
        ]
        click.echo(_line(texts, widths, sides, styled))


def _line(
    texts: list[str], widths: list[int], sides: list[bool], styled: list[str] | None = None
) -> str:
    cells = []
    for text, shown, width, right in zip(texts, styled or texts, widths, sides, strict=True):
        blank = " " * max(0, width - cell_len(text))
        cells.append(blank + shown if right else shown + blank)
    return GAP.join(cells).rstrip()
