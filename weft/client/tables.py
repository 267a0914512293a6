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
WORDS_MIN = 12
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
    "RECOVERING": "yellow",
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
    """One column: those of the highest `rank` leave first, of rank 0 the last ones if they must.

    `kind`: `text`; `name` may lose its middle; `state` has its colour; `id` may be recognised by
    its last part (`short` makes it); `words` may go over several lines.
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
        say(title)
    place = {id(head): i for i, head in enumerate(heads)}
    sides = [right[place[id(head)]] for head in kept]
    names = [_wrapped(head.name, width) for head, width in zip(kept, widths, strict=True)]
    deep = max(map(len, names), default=0)
    for number in range(deep):
        texts = [["", *name][max(0, number + 1 - deep + len(name))] for name in names]
        click.echo(click.style(_line(texts, widths, sides), bold=True))
    for row in cells:
        _print_row(kept, row, widths, sides)
    if gone:
        say(f"not shown at this width: {', '.join(head.name for head in gone)}", dim=True)


def say(text: str, **style: bool) -> None:
    """Print words over as many lines as the terminal needs, below an indented one's words."""
    indent = text[: len(text) - len(text.lstrip())]
    further = indent + "  " if indent else ""
    width = terminal_width()
    for line in textwrap.wrap(text, width, subsequent_indent=further, break_on_hyphens=False):
        click.echo(click.style(line, **style))


def _wrapped(text: str, width: int) -> list[str]:
    """Return a text as lines of whole words; one that no line holds loses its middle."""
    words = " ".join(cut(word, width) for word in text.split(" "))
    return textwrap.wrap(words, width, break_on_hyphens=False) or [""]


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
    tight = False

    def width_of(i: int) -> int:
        name = heads[i].name
        head = max(map(cell_len, name.split(" "))) if tight else cell_len(name)
        widest = max((cell_len(row[i]) for row in cells), default=0)
        return max(head, min(widest, WORDS_MIN) if tight and heads[i].kind == "words" else widest)

    def over() -> int:
        return sum(map(width_of, kept)) + len(GAP) * (len(kept) - 1) - width

    def add(columns: Iterable[int]) -> None:
        # Those that matter more come first, and a narrower one may still fit.
        for i in columns:
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

    if over() > 0:
        _shorten(heads, cells)
    # Words of headers and of texts go over several lines before anything is left out.
    tight = over() > 0
    _shrink(heads, cells, kept, over(), 2 * NAME_COLUMNS_MIN)
    if over() > 0:
        kept = [i for i in kept if not heads[i].rank]
        add(sorted((i for i, head in enumerate(heads) if head.rank), key=lambda i: heads[i].rank))
    _shrink(heads, cells, kept, over(), NAME_COLUMNS_MIN)
    if over() > 0:
        first, *others = kept
        kept = [first]
        for row in cells:
            row[first] = cut(row[first], width)
        add(others)
    found, spare = [width_of(i) for i in kept], -over()
    # Words take the width that is left.
    for place, i in enumerate(kept):
        more = max((cell_len(row[i]) for row in cells), default=0) - found[place]
        more = max(0, min(spare, more))
        found[place] += more
        spare -= more
    gone = [
        head
        for i, head in enumerate(heads)
        if i not in kept and any(row[i] != "-" for row in cells)
    ]
    return [heads[i] for i in kept], [[row[i] for i in kept] for row in cells], found, gone


def _shorten(heads: list[Column], cells: list[list[str]]) -> None:
    """Have the short form of each cell whose column has one."""
    for i, head in enumerate(heads):
        if head.short is not None:
            for row in cells:
                row[i] = head.short(row[i])


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
        _wrapped(text, width) if head.kind == "words" else [text]
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
