"""`weft predict`: when waiting and running jobs will start and end."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from lab.commands.tape_times import Moment, TapeTime, on_clock
from rm.match.registry import make_matcher
from sim.replay.predict import DRAWS, Prediction
from sim.replay.snapshot import State
from sim.settings import SimSettings
from weft.client import completing, show
from weft.client.commands_apps import connected, manager_option
from weft.client.naming import find_app
from weft.client.tables import Column, say, table
from weft.model.cluster import ClusterSpec
from weft.model.errors import InputError
from weft.model.ids import AppId
from weft.policies.presets import PRESETS, Preset, choose, with_options
from weft.protocol.messages import MANAGER
from weft.runtime.tapefile import find_tapes


@click.command()
@click.argument("apps", metavar="[APP]...", nargs=-1, shell_complete=completing.applications)
@manager_option
@click.option(
    "--tape",
    "folder",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FOLDER",
    help="Ask a recorded cluster, instead of a live one.",
)
@click.option(
    "--at",
    type=TapeTime(),
    default=None,
    metavar="T",
    help="With --tape: when, s on the cluster's clock; +T: from the first event on.",
)
@click.option("--scheduler", default="", help="The live cluster's preset, if its matcher is not.")
@click.option(
    "--pace",
    type=click.Choice(["yarn", "prompt"]),
    default="prompt",
    show_default=True,
    help="The live cluster's pace.",
)
@click.option("--cluster", default="", help="The live cluster's file: limits in queues are there.")
@click.option("--draws", type=click.IntRange(10), default=DRAWS, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE",
    help="Where predictions of live clusters and their outcomes are kept.",
)
@click.option("--json", "as_json", is_flag=True, help="Print data, not a table.")
def predict(
    apps: tuple[str, ...],
    address: str,
    folder: Path | None,
    at: Moment | None,
    draws: int,
    seed: int,
    record: Path | None,
    as_json: bool,
    **live: str,
) -> None:
    """Say when jobs will start and end, as bands: 5, 50 and 95 % of what may come.

    APP is an id, a number, a job's name or -, the newest; none: all that have not ended. The
    manager's state goes on in the simulator as many times as --draws says, with durations drawn
    from how far estimates were off so far. Jobs that are submitted later are not known.
    """
    if (folder is None) != (at is None):
        raise InputError("--tape", "goes with --at T, and --at with --tape")
    if folder is not None and at is not None:
        _of_tape(folder, at, apps, draws, seed, as_json)
    else:
        _of_cluster(address, apps, live, draws, seed, record, as_json)


def _of_cluster(
    address: str,
    names: tuple[str, ...],
    live: dict[str, str],
    draws: int,
    seed: int,
    record: Path | None,
    as_json: bool,
) -> None:
    from lab.commands.prediction_book import PredictionBook, default_path, stretched
    from sim.replay.predict import predict as foresee
    from sim.replay.snapshot import read_state
    from weft.workloads.cluster_file import load_cluster

    known: ClusterSpec | None = load_cluster(live["cluster"]) if live["cluster"] else None
    book = PredictionBook(record or default_path())
    with connected(address) as client:
        state = read_state(client, known)
        cluster_ts, scale = client.metrics().cluster_ts, client.manager().time_scale
        chosen = [find_app(client, name) for name in names]
        told = {one.name: one.value for one in client.settings()}
    scheduler = choose(live["scheduler"]) if live["scheduler"] else _scheduler(state.matcher, told)
    settings = SimSettings(scheduler, prompt=live["pace"] == "prompt")
    book.settle(cluster_ts, state.ended)
    score = book.score()
    found = foresee(state, settings, chosen or _all(state), None, draws, seed)
    book.add(cluster_ts, state.now_s, found)
    found = [stretched(one, score.wider, state.now_s) for one in found]
    past = {
        "predictions": score.predictions,
        "median_error": score.error,
        "inside_band": score.inside,
        "bands_stretched_by": score.wider,
    }
    _show(
        state.now_s,
        found,
        {},
        past if score.predictions else None,
        as_json,
        show.time_of_day(state.now_s, state.now_s, 1.0),
    )
    if not as_json:
        show.say_pace(scale)


def _scheduler(matcher: str, told: Mapping[str, str]) -> Preset:
    """Return the preset named after a live matcher, else the first that has it.

    A matcher of another package is made as the manager's settings (`told`) say, with the usual
    planner and asker. Raises InputError where it is not here.
    """
    if matcher in PRESETS:
        return choose(matcher)
    for name, known in PRESETS.items():
        if known.matcher == matcher:
            return choose(name)
    written = told.get("matcher") or matcher
    options = {key: value for key, value in told.items() if key.startswith("matcher.")}
    chosen = with_options(choose(matcher=written), options)
    try:
        make_matcher(chosen.matcher, chosen.matcher_options)
    except InputError as error:
        raise InputError(
            "--scheduler",
            f"the cluster runs the matcher {written!r}, which cannot be made here ({error}): give "
            "the command where its package is, or name a preset that is alike",
        ) from None
    return chosen


def _of_tape(
    folder: Path, at: Moment, names: tuple[str, ...], draws: int, seed: int, as_json: bool
) -> None:
    from lab.commands.replay import none_began
    from rm.core import ResourceManager
    from sim.replay import whatif as what
    from sim.replay.client_view import AskedManager
    from sim.replay.predict import predict as foresee
    from sim.replay.rebuild import survey
    from sim.replay.snapshot import read_state
    from sim.replay.verify import Replay

    tapes = find_tapes(folder)
    at_s = on_clock(at, tapes)
    read = {role: [tape.rows for tape in tapes if tape.role == role] for role in ("rm", "am", "nm")}
    if not read["rm"]:
        raise InputError("--tape", "none of them is a Resource Manager's, which knows how it stood")
    surveyed = survey(read["rm"], [*read["am"], *read["nm"]], at_s)
    run = Replay()
    for tape in read["rm"]:
        later = Replay().run(tape(), at_s)
        run = later if later.events else run
    manager = run.cores.get(MANAGER)
    if not isinstance(manager, ResourceManager):
        raise InputError("--at", none_began(at_s, read["rm"]))
    seen = surveyed.seen
    assert seen.parts is not None
    made = [next(filter(None, (what.first_core(t()) for t in read[r])), None) for r in ("am", "nm")]
    settings = what.settings_of(seen.parts, made[0], None)
    asked = AskedManager(manager, at_s)
    if at_s < (first_s := min(came_s for came_s, _ in seen.starts)):
        raise InputError(
            "--at", f"no node had come by {at_s:g} s; the first did at {first_s:.1f} s"
        )
    state = read_state(asked, replace(what.cluster_of(seen), queues=manager.books.queues.root))
    state.now_s = at_s
    chosen = [find_app(asked, name) for name in names]
    found = foresee(state, settings, chosen or _all(state), surveyed.delays, draws, seed)
    ended = {app: end_s for app, (status, end_s) in seen.ended.items() if status == "SUCCEEDED"}
    _show(at_s, found, ended, None, as_json)


def _all(state: State) -> list[AppId]:
    return [one.report.app_id for one in state.apps]


def _show(
    now_s: float,
    found: list[Prediction],
    ended: dict[AppId, float],
    past: dict[str, Any] | None,
    as_json: bool,
    of_day: str = "",
) -> None:
    """Print a row a job; times count from now, at a time `of_day` if that is known."""
    if as_json:
        show.echo_json({"now_s": now_s, "predictions": found, "ended_s": ended, "past": past})
        return
    if not found:
        click.echo("nothing waits or runs")
        return
    rows = []
    for one in found:
        start = one.start
        rows.append(
            (
                one.app,
                one.name,
                "waits" if one.waits else "runs",
                "-" if start is None else _span(start.early_s, start.late_s, now_s),
                "-" if start is None else _in(start.usual_s, now_s),
                _span(one.end.early_s, one.end.late_s, now_s),
                _in(one.end.usual_s, now_s),
                *([_in(ended.get(one.app, math.inf), now_s)] if ended else []),
            )
        )
    table(
        (
            Column("app"),
            Column("job", kind="name"),
            Column("state", 3),
            "starts in s, 90 %",
            "likely",
            "ends in s, 90 %",
            "likely",
            *(["it ended in"] if ended else []),
        ),
        rows,
        title=f"from {', '.join(filter(None, (f'{now_s:.1f} s', of_day)))} on",
    )
    if any(" " not in _span(one.end.early_s, one.end.late_s, now_s) for one in found):
        say(
            "one number is no band: no task that ended took longer or shorter than estimated so far"
        )
    if past is not None:
        say(
            f"{past['predictions']} past predictions: median error of the end "
            f"{100 * past['median_error']:.0f} % of what was left, "
            f"{100 * past['inside_band']:.0f} % inside the band"
        )


def _span(early_s: float, late_s: float, now_s: float) -> str:
    early, late = _in(early_s, now_s), _in(late_s, now_s)
    return early if early == late else f"{early} to {late}"


def _in(at_s: float, now_s: float) -> str:
    return f"{at_s - now_s:.1f}" if math.isfinite(at_s) else "never"


commands: list[click.Command] = [predict]
