"""Trials over seeds: kept rows, means with 95 % intervals, differences paired by seed.

A study is a table of cases; each is run once a seed. Rows are kept in a file as they end, seeds
outermost, so that a study that was stopped goes on where it was and what is there is balanced.
"""

import argparse
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.studies.grid import kept_rows

# Student's t, 97.5 %, by degrees of freedom 1 to 30; beyond, its expansion about the normal one
_T = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
    2.120,
    2.110,
    2.101,
    2.093,
    2.086,
    2.080,
    2.074,
    2.069,
    2.064,
    2.060,
    2.056,
    2.052,
    2.048,
    2.045,
    2.042,
)
Trial = Callable[[int], Mapping[str, Any]]
Rows = dict[str, list[dict[str, Any]]]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % interval (Student's t); NaN below 2 values.

    A seed whose run says nothing (NaN: no window with two jobs) is left out.
    """
    found = np.asarray(values, dtype=np.float64)
    found = found[~np.isnan(found)]
    n = len(found)
    if n < 2:
        return float(found.mean()) if n else math.nan, math.nan
    return float(found.mean()), float(student_t(n - 1) * found.std(ddof=1) / math.sqrt(n))


def student_t(freedom: int) -> float:
    """Return Student's t, 97.5 %, by degrees of freedom."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    return 1.96 + 2.372 / freedom + 2.822 / freedom**2


def paired(rows: Rows, case: str, base: str, name: str, percent: bool) -> tuple[float, float]:
    """Return the mean difference of a case from `base` in one number, seed by seed, +- 95 %.

    In percent of the base's number, or as it is.
    """
    pairs = [(a[name], b[name]) for a, b in zip(rows[case], rows[base], strict=True)]
    return interval([100.0 * (a / b - 1.0) if percent else a - b for a, b in pairs])


def told(value: tuple[float, float], digits: int, sign: bool = False) -> str:
    """Return a number with its interval, if it has one: `12.3 ± 0.4`."""
    mean, half = value
    plus = "+" if sign else ""
    spread = "" if math.isnan(half) else f" ± {half:.{digits}f}"
    return f"{mean:{plus}.{digits}f}{spread}"


def cell(values: Sequence[float], digits: int) -> str:
    """Return the mean of the seeds whose run says something, and of how many if not of all."""
    count = sum(not math.isnan(value) for value in values)
    if not count:
        return "-"
    few = "" if count == len(values) else f" ({count} of {len(values)} seeds)"
    return told(interval(values), digits) + few


def run_trials(cases: Mapping[str, Trial], seeds: Sequence[int], path: Path, study: str) -> Rows:
    """Run what `path` does not hold yet; rows by case in the order of the seeds."""

    def make(trial: Trial, case: str, seed: int) -> Callable[[], Mapping[str, Any]]:
        def run() -> Mapping[str, Any]:
            start_s = time.process_time()
            found = dict(trial(seed))
            spent_s = round(time.process_time() - start_s, 2)
            return {"case": case, "seed": seed, "cpu_s": spent_s, **found}

        return run

    makes = {
        f"{study}/{case}/{seed}": make(trial, case, seed)
        for seed in seeds
        for case, trial in cases.items()
    }
    rows: Rows = {case: [] for case in cases}
    for row in kept_rows(path, makes):
        rows[row["case"]].append(row)
    return rows


def print_table(
    title: str, rows: Rows, names: Mapping[str, int], base: str, against: Mapping[str, bool]
) -> None:
    """Print Markdown: numbers by `names` (digits), then differences from `base`.

    `against` says of each compared number whether its difference is in percent.
    """
    n = len(next(iter(rows.values())))
    heads = [
        *names,
        *(f"{name} against {base}" + (", %" if p else "") for name, p in against.items()),
    ]
    print(f"\n{title}; {n} seeds, ± 95 %\n\n| | {' | '.join(heads)} |")
    print(f"|---|{'---:|' * len(heads)}")
    for case, found in rows.items():
        cells = [cell([r[name] for r in found], digits) for name, digits in names.items()]
        for name, percent in against.items():
            digits = 1 if percent else names.get(name, 3)
            same = case == base
            cells.append(
                "" if same else told(paired(rows, case, base, name, percent), digits, True)
            )
        print(f"| {case} | {' | '.join(cells)} |", flush=True)


def reader(module: str, studies: Sequence[str], rows: str) -> argparse.ArgumentParser:
    """Return the words of a study's command: which ones, how many seeds, where rows are kept."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("study", nargs="+", choices=studies)
    parser.add_argument("--seeds", type=int, default=10, help="seeds 0 to N - 1")
    kept = Path(os.environ.get("WEFT_STUDIES", "build/studies")) / rows
    parser.add_argument("--rows", type=Path, default=kept, help="where runs are kept")
    return parser
