"""What a page of a paper is made of: figures, their runs, the lines that they print.

A figure names its runs as cases by seed. Runs are kept in one file a paper, one row a run by the
digest of what decides it, so that a page can be written again without running anything, and two
figures that need the same runs share them.
"""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.papers.digest import Case
from lab.papers.kept import Kept
from lab.papers.verdict import CANNOT_TELL, DIFFERS, EQUIVALENT, VERDICTS, Measure, verdict
from lab.studies.trials import Rows, interval
from weft.model.errors import InputError, WeftError


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a figure's table: the paper's number as it prints it, ours with its interval."""

    what: str
    paper: str
    ours: tuple[float, float]
    measure: Measure
    why: str = ""

    def verdict(self, seeds: int) -> str:
        """Return whether ours is the paper's, or nothing where that is no number."""
        return verdict(self.ours, seeds, self.paper, self.measure)


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """One claim of a paper, in its order: `says` begins with the section.

    `lines` are those of a figure that it stands for, none where nothing of ours tests it.
    """

    says: str
    figure: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure or table of a paper: `number` as `table 4`.

    `cases` by name: one run a seed. `lines` reads their rows, `draw` makes the picture on
    Matplotlib axes. `guess_s` is what a run costs in processor seconds before any was kept.

    Where seeds change nothing, `seeds_max` is 1. `also` has other numbers that it is found by, such
    as `figure 21, table 1`.
    """

    number: str
    title: str
    cases: Mapping[str, Case]
    lines: Callable[[Rows], Sequence[Line]]
    text: str = ""
    draw: Callable[[Rows, Any], None] | None = None
    guess_s: float = 2.0
    seeds_max: int = 1_000
    also: str = ""


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper's page; `absent` says of what is not on it why, `claims` what the paper claims."""

    name: str
    title: str
    text: str
    figures: Sequence[Figure]
    absent: Mapping[str, str] = field(default_factory=dict)
    claims: Sequence[ClaimRow] = ()

    def chosen(self, number: str) -> list[Figure]:
        """Return a number's figures (`4`, `figure 4`, `table 4`), or all; raises InputError."""
        if not number:
            return list(self.figures)
        wanted = number.lower().strip()
        found = [f for f in self.figures if wanted in _numbers(f.number)]
        found = found or [f for f in self.figures if wanted in _numbers(f.also)]
        if not found:
            why = next((w for n, w in self.absent.items() if wanted in _numbers(n)), "")
            known = ", ".join(f.number for f in self.figures)
            raise InputError(
                "--figure", f"{number!r} is not on this page; {why or f'it has {known}'}"
            )
        return found


def _numbers(names: str) -> set[str]:
    """Return what `figures 1, 3 to 5, table 2` names, with the word and without."""
    found, kind = set(), ""
    for part in names.lower().split(", "):
        match = re.fullmatch(r"(?:(figure|table|section)s? )?([\w.]+)(?: to ([\w.]+))?", part)
        if match is None:
            found.add(part)
            continue
        kind, (first, last) = match[1] or kind, match.group(2, 3)
        inner = [first]
        if last and "." not in first:
            inner = [str(n) for n in range(int(first), int(last) + 1)]
        elif last:
            chapter, begin = first.split(".")
            inner = [f"{chapter}.{n}" for n in range(int(begin), int(last.split(".")[1]) + 1)]
        found |= {*inner, *(f"{kind} {n}" for n in inner)}
    return found


def over(
    rows: Rows, case: str, number: Callable[[Mapping[str, Any]], float]
) -> tuple[float, float]:
    """Return the mean over seeds of a number of a case's rows, and half of its 95 % interval."""
    return interval([number(row) for row in rows[case]])


def against(
    rows: Rows, case: str, base: str, number: Callable[[Any, Any], float]
) -> tuple[float, float]:
    """Return the mean over seeds of `number(base's row, case's row)`, half its 95 % interval."""
    pairs = zip(rows[base], rows[case], strict=True)
    return interval([number(before, own) for before, own in pairs])


def text_of(paper: Paper, kept: Kept, pictures: Mapping[str, str]) -> str:
    """Return the page, Markdown. `pictures`: file name by number of figure."""
    rows = {figure.number: kept.rows(figure) for figure in paper.figures}
    counts = {number: len(next(iter(found.values()))) for number, found in rows.items()}
    lines = {f.number: f.lines(rows[f.number]) for f in paper.figures if counts[f.number]}
    parts = [
        f"# {paper.title}",
        _of_what(paper, kept),
        claims_of(paper, lines, counts),
        paper.text.strip(),
        "Numbers are means over seeds 0 to N - 1, ± 95 % (Student's t). *Equivalent*: the whole "
        "interval lies within a margin of the paper's number that was set beforehand "
        "([margins](../papers.md#verdicts)); *differs*: all of it lies outside; *cannot tell*: "
        "neither, with the number of seeds that would tell. `--figure` makes one figure, `--seeds` "
        "says how many seeds.",
    ]
    for figure in paper.figures:
        if not counts[figure.number]:
            how = f"`weft paper {paper.name} --figure '{figure.number}'`"
            cost = _span(kept.cost_s([figure]))
            says = f"No seed has all runs of this code: {how} makes them in about {cost}."
            parts.append(f"## {_title(figure)}\n\n{f'{figure.text.strip()} {says}'.strip()}")
            continue
        parts.append(
            f"## {_title(figure)}\n\n"
            + _body(figure, rows[figure.number], lines[figure.number], pictures)
        )
    if paper.absent:
        absent = "\n".join(f"| {number} | {why} |" for number, why in paper.absent.items())
        parts.append(f"## What is not here\n\n| number | why |\n|---|---|\n{absent}")
    return "\n\n".join(parts) + "\n"


def claims_of(paper: Paper, lines: Mapping[str, Sequence[Line]], counts: Mapping[str, int]) -> str:
    """Return the table of a paper's claims, and how many of all its numbers come out."""
    found = [line.verdict(counts[number]) for number, own in lines.items() for line in own]
    many = {word: sum(said.startswith(word) for said in found) for word in VERDICTS}
    head = (
        f"Of {sum(many.values())} numbers of the paper that have runs, {many[EQUIVALENT]} are "
        f"equivalent, {many[DIFFERS]} differ, and of {many[CANNOT_TELL]} these seeds cannot tell."
    )
    table = ["| the paper claims | paper | ours | verdict |", "|---|---|---|---|"]
    for claim in paper.claims:
        own = [line for line in lines.get(claim.figure, ()) if line.what in claim.lines]
        said = [line.verdict(counts[claim.figure]).partition(" (")[0] for line in own]
        numbers = " / ".join(line.paper for line in own)
        ours = " / ".join(line.measure.told(line.ours) for line in own)
        place = f" ({claim.figure})" if claim.figure else ""
        verdicts = " / ".join(said if len(set(said)) > 1 else said[:1])
        why = "no runs of this code" if claim.figure else "not tested"
        table.append(f"| {claim.says}{place} | {numbers} | {ours} | {verdicts or why} |")
    return f"{head}\n\n" + "\n".join(table) if paper.claims else head


def _of_what(paper: Paper, kept: Kept) -> str:
    """Return which of the page's runs are there, and of which commits."""
    wanted = {key for figure in paper.figures for key in kept.wanted(figure)}
    found = [kept.known[key] for key in wanted if key in kept.known]
    commits = sorted({str(row["commit"]) for row in found})
    said = (
        f"Made by `weft paper {paper.name}`: {len(found)} of {len(wanted)} runs "
        f"({kept.seeds} seeds) are kept of code that decides as this does"
    )
    if commits:
        said += f" (commits {', '.join(commits)})"
    missing = len(wanted) - len(found)
    if missing:
        cost = _span(kept.cost_s(paper.figures))
        said += f"; the other {missing} take about {cost} of processor time"
    return f"{said}."


def _title(figure: Figure) -> str:
    return f"{figure.number[0].upper()}{figure.number[1:]}: {figure.title}"


def _body(figure: Figure, rows: Rows, lines: Sequence[Line], pictures: Mapping[str, str]) -> str:
    seeds = len(next(iter(rows.values())))
    spent = sum(float(row["cpu_s"]) for found in rows.values() for row in found)
    many = f"{seeds} seeds" if seeds > 1 else "One seed, and so no interval"
    if figure.seeds_max == 1:
        many = "one run a case, as nothing is drawn"
    head = f"{figure.text.strip()} {many}, {_span(spent)} of processor time in all.".strip()
    table = "\n".join(
        f"| {line.what} | {line.paper} | {line.measure.told(line.ours)} | {line.verdict(seeds)} "
        f"| {line.why} |"
        for line in lines
    )
    picture = pictures.get(figure.number)
    drawn = f"\n\n![{figure.title}]({picture})" if picture else ""
    return f"{head}\n\n| | paper | ours | verdict | why |\n|---|---|---|---|---|\n{table}{drawn}"


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


# Letters stay letters, so that files stay small.
_STYLE: Any = {"font.size": 9, "svg.fonttype": "none"}


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file whole or not at all; raises WeftError where that cannot be done."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(partial)
        os.replace(partial, path)
    except OSError as error:
        raise WeftError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)


def draw(figure: Figure, rows: Rows, path: Path) -> None:
    """Write a figure's picture (SVG), the same bytes for the same rows."""
    import matplotlib
    from matplotlib import figure as pictures

    if figure.draw is None:
        return
    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": figure.number}):
        drawing = pictures.Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = drawing.subplots()
        figure.draw(rows, axes)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        write_whole(path, lambda p: drawing.savefig(p, format="svg", metadata={"Date": None}))


def bars(
    axes: Any,
    groups: Sequence[str],
    series: Mapping[str, Sequence[tuple[float, float]]],
    papers: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Draw bars with 95 % intervals by group and series; the paper's numbers as black strokes."""
    width = 0.8 / max(len(series), 1)
    for place, (name, values) in enumerate(series.items()):
        at = [i + (place - (len(series) - 1) / 2) * width for i in range(len(groups))]
        spread = [0.0 if math.isnan(half) else half for _, half in values]
        axes.bar(at, [mean for mean, _ in values], 0.92 * width, yerr=spread, capsize=2, label=name)
        for x, number in zip(at, (papers or {}).get(name, ()), strict=False):
            if not math.isnan(number):
                axes.plot([x - width / 2, x + width / 2], [number] * 2, color="black", linewidth=2)
    axes.set_xticks(range(len(groups)), groups)
    if len(series) > 1 or papers:
        axes.legend(frameon=False, fontsize=7, title="black: the paper" if papers else None)


__all__ = [
    "ClaimRow",
    "Figure",
    "Line",
    "Paper",
    "against",
    "bars",
    "draw",
    "over",
    "text_of",
    "write_whole",
]
