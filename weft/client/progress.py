"""Progress bars that fit the terminal: the name, the bar, how much, since when, time left."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from weft.client.text import cut, duration, safe

# These columns are taken by all but the name and the bar.
COLUMNS_BESIDE_BAR = 46


class TimeLeft(ProgressColumn):
    """`12 s left`, from the speed of the last half minute; nothing while that is not known."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """Return the words for one bar."""
        left = task.time_remaining
        if task.finished or left is None or task.total is None:
            return Text("")
        return Text(f"{duration(left)} left", style="cyan")


class Completed(ProgressColumn):
    """`3/12`; `3/?` until the total is known."""

    def render(self, task: Task) -> Text:
        """Return the words for one bar."""
        total = "?" if task.total is None else f"{task.total:,.0f}"
        return Text(f"{task.completed:,.0f}/{total}")


def bars(
    console: Console, *, transient: bool = False, refresh: float = 10, scale: float = 1.0
) -> Progress:
    """Return a group of bars; each needs the fields `state` (a word or two) and a `description`.

    Their times are of a clock that runs `scale` times as fast as the wall's.
    """
    room = max(10, console.width - COLUMNS_BESIDE_BAR)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=max(5, min(30, room // 2))),
        Completed(),
        TextColumn("{task.fields[state]}", markup=False),
        TimeElapsedColumn(),
        TimeLeft(),
        console=console,
        get_time=lambda: time.monotonic() * scale,
        transient=transient,
        refresh_per_second=refresh,
        disable=not console.is_terminal,
    )


@contextmanager
def following(what: str, total: float, told: Callable[[], tuple[float, str]]) -> Iterator[None]:
    """Show a bar on stderr of the progress `told` (done, words), gone when it is done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    done = threading.Event()
    with bars(console, transient=True) as shown:
        bar = shown.add_task(what, total=total, state="")

        def follow() -> None:
            while not done.wait(0.2):
                completed, state = told()
                shown.update(bar, completed=min(completed, total), state=state)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def shortened(console: Console, name: str, indent: str = "") -> str:
    """Return a name as a bar shows it: harmless, and no wider than there is room for."""
    room = max(10, console.width - COLUMNS_BESIDE_BAR)
    return indent + cut(
        safe(name), max(8, min(40, room - max(5, min(30, room // 2))) - len(indent))
    )
