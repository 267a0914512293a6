"""Words for people: names made harmless, amounts and durations in units that one can read."""

import re
import shutil
import unicodedata
from collections.abc import Mapping, Sequence

# A table that goes into a file or a pipe is so wide.
FILE_COLUMNS = 400
_DIGITS = re.compile(r"(\d+)")
_TERMINAL = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def safe(text: object) -> str:
    """Return a text that moves no cursor and sets no colour: unprintable characters as codes.

    Also those marks of Unicode that reorder a line or cannot be seen.
    """
    plain = str(text)
    if plain.isascii() and plain.isprintable():
        return plain
    return "".join(_shown(c) for c in plain)


def _shown(c: str) -> str:
    if unicodedata.category(c) not in _HIDDEN:
        return c
    if c in _TERMINAL:
        return _TERMINAL[c]
    number = ord(c)
    return f"\\x{number:02x}" if number < 256 else f"\\u{{{number:x}}}"


def cut(text: str, width: int) -> str:
    """Return a text of at most `width` columns; a longer one loses its middle: ends tell apart."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    tail = (width - 1) * 3 // 5 if width > 8 else 0
    head = width - 1 - tail
    last = text[len(text) - tail :] if tail else ""
    while cell_len(last) > tail:
        last = last[1:]
    return set_cell_size(text, head).rstrip() + "…" + last


def number(value: float) -> str:
    """Return `0.25`, `12.5`, `65,536`: at most two digits after the point, no rounding noise."""
    rounded = round(value, 2)
    if rounded == 0:
        return "0"
    return f"{rounded:,.2f}".rstrip("0").rstrip(".")


_SIZES = (("TB", 1024.0**2), ("GB", 1024.0), ("MB", 1.0))


def amount(name: str, value: float) -> str:
    """Return `12.5 vcores`, `64 GB`, `3 gpus`: an amount of a resource, in its usual unit."""
    if name == "vcores":
        return f"{number(value)} vcore" + ("" if value == 1 else "s")
    if name.endswith("_mb"):
        unit, size = _unit(value)
        return f"{number(round(value / size, 1))} {unit}"
    return f"{number(value)} {safe(name)}"


def pair(name: str, value: float, of: float) -> str:
    """Return `8/16 vcores`, `32/64 GB`: what is held of what there is."""
    if name.endswith("_mb"):
        unit, size = _unit(of)
        return f"{number(round(value / size, 1))}/{number(round(of / size, 1))} {unit}"
    return f"{number(value)}/{number(of)}" + (" vcores" if name == "vcores" else "")


def _unit(value: float) -> tuple[str, float]:
    return next((u for u in _SIZES if abs(value) >= u[1] * 0.995), _SIZES[-1])


def amounts(named: dict[str, float]) -> str:
    """Return `4 vcores, 2 GB`: what is not zero; rounding noise is zero."""
    told = [amount(name, value) for name, value in named.items() if abs(value) >= 0.005]
    return ", ".join(told) or "-"


def is_long(named: Mapping[str, float]) -> bool:
    """Return whether amounts held over time are better given in hours."""
    return any(value / _large(name) >= 3600.0 for name, value in named.items())


def work(named: Mapping[str, float], hours: bool) -> str:
    """Return `30 vcore s, 120 GB s`: amounts held over time, in s or all in hours, memory in GB."""
    unit, size_s = ("h", 3600.0) if hours else ("s", 1.0)
    told = []
    for name, value in named.items():
        if abs(value / size_s / _large(name)) < 0.005:
            continue
        shown = {"vcores": "vcore", "memory_mb": "GB"}.get(name, safe(name))
        told.append(f"{number(float(f'{value / size_s / _large(name):.3g}'))} {shown} {unit}")
    return ", ".join(told) or "-"


def _large(name: str) -> float:
    return 1024.0 if name == "memory_mb" else 1.0


def plural(count: int, word: str) -> str:
    """Return `1 job`, `1,200 jobs`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def percent(part: float) -> str:
    """Return a part in whole percent, rounded; only what is whole is `100%`."""
    return f"{100 if part >= 1 else min(99, int(max(0.0, part) * 100 + 0.5))}%"


def duration(seconds: float) -> str:
    """Return `0.4 s`, `58 s`, `3m05s`, `2h10m`, `4d03h`."""
    s = max(0.0, seconds)
    if s < 9.95:
        return f"{s:.1f} s"
    whole = round(s)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def natural(text: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts `n2` before `n10`."""
    parts = _DIGITS.split(text)
    return [(0, int(p), "") if p.isdigit() and p.isascii() else (1, 0, p) for p in parts if p]


def terminal_width() -> int:
    """Return columns of the terminal that stdout is, or of a file."""
    import sys

    if not sys.stdout.isatty():
        return FILE_COLUMNS
    return max(20, shutil.get_terminal_size((80, 24)).columns)


def missing_text(members: Sequence[int]) -> str:
    """Return the note under a listing that lacks what these members have."""
    named = ", ".join(map(str, members))
    if len(members) == 1:
        return f"member {named} did not answer: what it has is not listed (weft managers says why)"
    return f"members {named} did not answer: what they have is not listed (weft managers says why)"
