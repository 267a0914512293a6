"""`weft replay`: tapes of a live run through fresh cores, which must decide the same."""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import click

from lab.commands.tape_times import Moment, TapeTime, on_clock
from lab.worker_pool import WorkerPool
from sim.replay.whatif import Jct
from sim.settings import SimSettings
from weft.client import show
from weft.client.naming import find_app
from weft.client.tables import table
from weft.client.text import plural, safe
from weft.model.errors import InputError, WeftError
from weft.model.json_types import Json
from weft.policies.parameters import split_settings
from weft.policies.presets import Preset, with_options
from weft.protocol.messages import MANAGER
from weft.runtime.tape import code_digest
from weft.runtime.tapefile import TapeFile, find_tapes
from weft.tape.rows import Handled, Row

# Tapes of so many bytes are worth a process each.
OWN_PROCESS_BYTES_MIN = 1 << 20
# An event or order is cut to so many characters in print.
LINE_CHARACTERS_MAX = 400


@click.command()
@click.argument(
    "paths", metavar="TAPE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--until",
    type=TapeTime(),
    default=math.inf,
    metavar="T",
    help="Stop before the first event after this time on the cluster's clock, s, and show how "
    "things stood; +T: from the first event on.",
)
@click.option("--explain", default="", metavar="APP", help="Why its pending stages were pending.")
@click.option("--app", "shown", default="", metavar="APP", help="One application with its stages.")
@click.option("--nodes", is_flag=True, help="The nodes as the manager saw them.")
@click.option("--queues", is_flag=True, help="The queues with their shares.")
@click.option(
    "--from",
    "from_s",
    type=TapeTime(),
    default=math.inf,
    metavar="T",
    help="Print every event from this time on, with all that was decided.",
)
@click.option("--core", default="", metavar="ADDRESS", help="With --from: only rm, node:N or am:N.")
@click.option("--check", is_flag=True, help="Check the books after every event (slow).")
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="cores",
    help="Processes: so many large tapes are replayed at a time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print data, not tables.")
def replay(
    paths: tuple[Path, ...], until: Moment, workers: int, as_json: bool, **options: Any
) -> None:
    """Feed tapes to fresh cores and compare what they decide.

    TAPE is a file, or a folder of them, as --tape of weft up, weft demo or a role's process makes
    them. APP is an id, a number, a job's name or -, the newest. Exit code 1 tells of a difference.
    """
    tapes = [tape for path in paths for tape in find_tapes(path)]
    until_s, options["from_s"] = on_clock(until, tapes), on_clock(options["from_s"], tapes)
    asked = bool(options["explain"] or options["shown"] or options["nodes"] or options["queues"])
    if asked or (until_s != math.inf and options["from_s"] == math.inf):
        _stand(tapes, until_s, as_json, asked, options)
        return
    told = _all_replayed(tapes, until_s, workers, options)
    if as_json:
        show.echo_json(told)
    else:
        _show(told)
    halted = sum(bool(row["problem"]) for row in told)
    if halted:
        raise InputError("TAPE", f"{halted} of {len(told)} tapes cannot be replayed to their end")
    differ = sum(bool(row["difference"]) for row in told)
    if differ:
        raise WeftError(f"{differ} of {len(told)} tapes replay otherwise than they ran")


def _all_replayed(
    tapes: Sequence[TapeFile], until_s: float, workers: int, options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Replay each tape alone; large ones in processes beside each other, the largest first."""
    sizes = [tape.path.stat().st_size for tape in tapes]
    if (
        options["from_s"] < math.inf
        or min(workers, len(tapes)) < 2
        or sum(sizes) < OWN_PROCESS_BYTES_MIN
    ):
        return [_replayed(tape, until_s, options) for tape in tapes]
    order = sorted(range(len(tapes)), key=lambda i: -sizes[i])
    with WorkerPool(min(workers, len(tapes))) as pool:
        found = {i: pool.submit(_replayed, tapes[i], until_s, options) for i in order}
        try:
            return [found[i].result() for i in range(len(tapes))]
        except BrokenProcessPool:
            raise WeftError(
                "a process that replayed a tape was killed: was memory short?"
            ) from None


def _replayed(tape: TapeFile, until_s: float, options: dict[str, Any]) -> dict[str, Any]:
    """Replay one tape through its cores; return what was found, as plain data."""
    from sim.process.command import quiet_collector
    from sim.replay.verify import Replay

    if tape.says.get("code") != code_digest():
        version = tape.says.get("version")
        click.echo(f"note: {tape.path.name}: recorded by other code ({version})", err=True)
    began_s = time.perf_counter()
    listen = _printer(options["from_s"], options["core"]) if options["from_s"] < math.inf else None
    run, problem = Replay(checked=options["check"], on_answer=listen), ""
    with quiet_collector():
        try:
            run.run(tape.rows(), until_s)
        except WeftError as error:
            problem = error.problem if isinstance(error, InputError) else str(error)
    difference = None
    if (found := run.difference) is not None:
        difference = {
            "event_number": found.number,
            "now_s": found.now,
            "core": found.core,
            "event": _line(found.event),
            "live": found.live,
            "replayed": found.replayed,
        }
    return {
        "tape": str(tape.path),
        "role": tape.role,
        "bytes": tape.path.stat().st_size,
        "cores": run.made,
        "events": run.events,
        "placements": run.placements,
        "answers_compared": run.sums,
        "until_s": run.now,
        "ended": run.ended,
        "closed": None if run.stopped or problem else bool(run.ended),
        "problem": problem,
        "replay_s": time.perf_counter() - began_s,
        "difference": difference,
    }


def _show(told: list[dict[str, Any]]) -> None:
    table(
        ("tape", "cores", "events", "placements", "compared", "until s", "ended", "decided"),
        [
            (
                Path(row["tape"]).name,
                row["cores"],
                row["events"],
                row["placements"],
                row["answers_compared"],
                row["until_s"],
                row["ended"] or ("cut off" if row["closed"] is False else "-"),
                _decided(row),
            )
            for row in told
        ],
        title=f"{plural(len(told), 'tape')}, {sum(row['bytes'] for row in told):,} bytes",
    )
    for row in told:
        name = Path(row["tape"]).name
        if row["problem"]:
            click.echo(f"{name}: {safe(row['problem'])}; replayed up to {row['until_s']:.6f} s")
        elif row["closed"] is False:
            click.echo(f"{name}: ends without its closing frame: later events are not on it")
        if (found := row["difference"]) is not None:
            click.echo(
                f"{name}: event {found['event_number']:,} at "
                f"{found['now_s']:.6f} s in {found['core']}\n"
                f"  event:    {safe(found['event'])}\n"
                f"  live:     {safe(found['live'])}\n"
                f"  replayed: {safe(found['replayed'])}"
            )


def _decided(row: Mapping[str, Any]) -> str:
    """Return how what was replayed compares, in words that claim no more than was compared."""
    if row["difference"]:
        return "otherwise"
    if row["problem"]:
        return "the same, then unknown"
    return "the same" if row["closed"] else "the same so far"


def _printer(from_s: float, core: str) -> Callable[[str, Any, float, list[Any]], None]:
    def answered(address: str, event: Any, now: float, orders: list[Any]) -> None:
        if now < from_s or core not in ("", address):
            return
        click.echo(f"{now:.6f} {address} <- {safe(_line(event))}")
        for order in orders:
            click.echo(f"    {safe(_line(order))}")

    return answered


def _line(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LINE_CHARACTERS_MAX else f"{text[: LINE_CHARACTERS_MAX - 4]} ..."


def _stand(
    tapes: list[TapeFile], until_s: float, as_json: bool, asked: bool, options: dict[str, Any]
) -> None:
    """Print how things stood in the manager: its newest process that had begun by then."""
    from rm.core import ResourceManager
    from sim.replay.client_view import AskedManager
    from sim.replay.verify import Replay

    managers = [tape for tape in tapes if tape.role == "rm"]
    if not managers:
        raise InputError("TAPE", "none of them is a Resource Manager's, which knows how it stood")
    run = Replay()
    for tape in managers:
        later = Replay(checked=options["check"]).run(tape.rows(), until_s)
        if later.events:
            run = later
    manager = run.cores.get(MANAGER)
    if not isinstance(manager, ResourceManager):
        raise InputError("--until", none_began(until_s, [tape.rows for tape in managers]))
    if run.difference is not None:
        click.echo(f"note: it decided otherwise at {run.difference.now:.6f} s", err=True)
    elif not run.stopped and not run.ended:
        click.echo(f"note: the tape ends at {run.now:.6f} s without its closing frame", err=True)
    client = AskedManager(manager, run.now)
    found: dict[str, Any] = {}
    if options["explain"]:
        found["explanation"] = client.explain(find_app(client, options["explain"]))
    if options["shown"]:
        found["application"] = client.application(find_app(client, options["shown"]))
    if options["nodes"]:
        found["nodes"] = client.nodes()
    if options["queues"]:
        found["queues"] = client.queues()
    if not asked:
        found["metrics"] = client.metrics()
        found["applications"] = client.applications()
    if as_json:
        show.echo_json({"now_s": run.now, **found})
        return
    click.echo(f"at {run.now:.6f} s, after {plural(run.events, 'event')}")
    _show_state(found, run.now)


def none_began(by_s: float, tapes: Sequence[Callable[[], Iterable[Row]]]) -> str:
    """Return that no manager of some tapes had begun by a time, and when the first one did."""
    times = [row.now for rows in tapes for row in islice(_events(rows()), 1)]
    first = f"; the first began at {min(times):.1f} s" if times else ""
    return f"no Resource Manager had begun by {by_s:g} s{first}"


def _events(rows: Iterable[Row]) -> Iterator[Handled]:
    return (row for row in rows if isinstance(row, Handled))


def _show_state(found: dict[str, Any], now_s: float) -> None:
    shows: dict[str, Callable[[Any], None]] = {
        "metrics": show.show_metrics,
        "applications": lambda reports: show.show_apps(reports, now_s),
        "application": lambda report: show.show_app(report, now_s),
        "nodes": show.show_nodes,
        "queues": show.show_queues,
        "explanation": show.show_explanation,
    }
    for name, value in found.items():
        shows[name](value)


@click.command()
@click.argument(
    "paths", metavar="TAPE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--scheduler", default="", help="A preset, instead of what ran.")
@click.option("--matcher", default="", help="Exchange the matcher.")
@click.option("--planner", default="", help="Exchange the planner.")
@click.option("--asker", default="", help="Exchange the asker.")
@click.option(
    "--set",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="A parameter: matcher.KEY, planner.KEY, asker.KEY, manager.KEY, master.KEY or node.KEY.",
)
@click.option("--cluster", default="", help="Cluster file or short form, instead of the nodes.")
@click.option("--pace", type=click.Choice(["yarn", "prompt"]), default=None, help="Another pace.")
@click.option(
    "--durations",
    type=click.Choice(["auto", "file", "measured"]),
    default="auto",
    show_default=True,
    help="What tasks take: as their job's file says, or what they took; auto: measured where they "
    "are commands.",
)
@click.option(
    "--at",
    type=TapeTime(),
    default=None,
    metavar="T",
    help="Go on from how things stood then, s on the cluster's clock, instead of from the start; "
    "+T: from the first event on.",
)
@click.option(
    "--draws",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Means and ranges of so many simulations, which differ in the delays that are drawn.",
)
@click.option("--json", "as_json", is_flag=True, help="Print data, not a table.")
def whatif(
    paths: tuple[Path, ...],
    draws: int,
    at: Moment | None,
    scheduler: str,
    options: tuple[str, ...],
    cluster: str,
    pace: str | None,
    durations: str,
    as_json: bool,
    **parts: str,
) -> None:
    """Simulate the jobs of a recorded run under other settings.

    TAPE names the tapes of the run (a folder, as --tape made it). Jobs come when they came. The
    recorded settings are simulated as well: compare simulated with simulated.
    """
    from sim.replay import fork
    from sim.replay import whatif as what
    from sim.replay.rebuild import survey
    from weft.workloads.cluster_file import load_cluster

    chosen = split_settings(options)
    tapes = [tape for path in paths for tape in find_tapes(path)]
    at_s = None if at is None else on_clock(at, tapes)
    read = {role: [tape.rows for tape in tapes if tape.role == role] for role in ("rm", "am", "nm")}
    if not read["rm"]:
        raise InputError("TAPE", "none of them is a Resource Manager's, which saw all jobs")
    if at_s is not None and (pace is not None or durations != "auto"):
        raise InputError("--at", "goes with no --pace and no --durations")
    others = [*read["am"], *read["nm"]]
    surveyed = survey(read["rm"], others, math.inf if at_s is None else at_s)
    seen = surveyed.seen
    made = [next(filter(None, (what.first_core(t()) for t in read[r])), None) for r in ("am", "nm")]
    assert seen.parts is not None
    same = what.settings_of(seen.parts, made[0], made[1], foreign=seen.all_foreign)
    nodes = what.instead(seen, load_cluster(cluster)) if cluster else what.cluster_of(seen)
    if at_s is not None and nodes.queues != what.cluster_of(seen).queues:
        raise InputError("--cluster", "has queues of its own, which go without --at only")
    changed = _changed(same, what.exchanged(same.scheduler, scheduler, parts), chosen)
    if at_s is None and pace is not None:
        changed = replace(changed, prompt=pace == "prompt")
    measured = durations == "measured" or (durations == "auto" and seen.commands)
    every, runs = [*read["rm"], *others], []
    for seed in range(draws):
        before, after = replace(same, seed=seed), replace(changed, seed=seed)
        if at_s is None:
            runs.append(what.compare(seen, before, after, nodes, measured, surveyed.delays))
        else:
            policies = after if changed != same else None
            runs.append(fork.compare(surveyed, every, before, policies, nodes if cluster else None))
    rows = what.mean_of(runs)
    show_times(rows, as_json)
    broke = [plural(count, what) for what, count in sorted(seen.faults.items()) if count]
    if broke:
        click.echo(
            f"note: {', '.join(broke)} as it ran; nothing breaks as simulated, so compare "
            "simulated with what if",
            err=True,
        )


def _changed(same: SimSettings, scheduler: Preset, options: Mapping[str, str]) -> SimSettings:
    """Return the recorded settings with what is set anew."""
    from sim.process.command import read_options

    policy, roles = read_options(options, scheduler)
    return replace(
        same,
        scheduler=with_options(scheduler, policy),
        manager={**same.manager, **roles["manager"]},
        master={**same.master, **roles["master"]},
        node=replace(same.node, **roles["node"]),
    )


def show_times(rows: list[Jct], as_json: bool) -> None:
    """Print a row a job, and the means over the jobs that end in both simulations.

    Of a cluster that still runs they may not have ended as they ran: the times are those of the
    others.
    """
    both = [row for row in rows if min(row.same_s, row.changed_s) >= 0]
    if not both:
        why = next((f"{_named(row)}: {row.why}" for row in rows if row.why), "there is none")
        raise WeftError(f"no job ended every time, so there is nothing to compare ({safe(why)})")
    ended = [row for row in both if row.recorded_s >= 0]
    same_s, changed_s = fmean(row.same_s for row in both), fmean(row.changed_s for row in both)
    ran_s = fmean(row.recorded_s for row in ended) if ended else None
    if as_json:
        means: Json = {"recorded_s": ran_s, "same_s": same_s, "changed_s": changed_s}
        means["same_by_draw_s"], means["changed_by_draw_s"] = _by_draw(both)
        counts = {"jobs_in_mean": len(both), "jobs_ended": len(ended)}
        show.echo_json({"jobs": rows, "mean": means, **counts})
        return
    table(
        ("job", "as it ran s", "simulated s", "range", "what if s", "range", "change %"),
        [
            (
                _named(row),
                _or_dash(row.recorded_s),
                _or_dash(row.same_s),
                _range(row.same_by_draw_s),
                _or_dash(row.changed_s),
                _range(row.changed_by_draw_s),
                "-" if min(row.same_s, row.changed_s) < 0 else _percent(row.same_s, row.changed_s),
            )
            for row in rows
        ],
        title=f"completion times of {plural(len(rows), 'job')}",
    )
    reasons: dict[tuple[str, bool], list[str]] = {}
    for row in rows:
        if row.why:
            reasons.setdefault((row.why, row in both), []).append(_named(row))
    for (why, simulated), names in reasons.items():
        left_out = "simulated all the same" if simulated else "not in the mean"
        click.echo(f"{safe(', '.join(names))}, {left_out}: {safe(why)}")
    if ran_s is not None:
        theirs_s = fmean(row.same_s for row in ended)
        off = [abs(_percent(row.recorded_s, row.same_s)) for row in ended]
        click.echo(
            f"mean of {len(ended)} that ended: ran {ran_s:.2f} s, simulated {theirs_s:.2f} s "
            f"({_percent(ran_s, theirs_s):+.1f} %; single jobs are off by {fmean(off):.1f} %, at "
            f"most {max(off):.1f} %)"
        )
    click.echo(
        f"mean of {len(both)}: simulated {same_s:.2f} s, what if {changed_s:.2f} s "
        f"({_percent(same_s, changed_s):+.1f} %)"
    )
    click.echo(_judged(*_by_draw(both)))
    if ran_s is not None and abs(changed_s - same_s) < abs(theirs_s - ran_s):
        click.echo("the change is smaller than what the simulation itself is off by")


def _by_draw(rows: Sequence[Jct]) -> tuple[list[float], list[float]]:
    """Return the means of these jobs in each draw, simulated and what if, s."""
    times = zip(*((row.same_by_draw_s, row.changed_by_draw_s) for row in rows), strict=True)
    same, changed = ([fmean(of) for of in zip(*jobs, strict=True)] for jobs in times)
    return same, changed


def _judged(same: Sequence[float], changed: Sequence[float]) -> str:
    """Return whether the means of draws, s, differ significantly."""
    if len(same) < 2:
        return "whether that is chance is not known: --draws 5 simulates it five times"
    told = f"{len(same)} draws: simulated {_range(same)} s, what if {_range(changed)} s"
    if min(changed) > max(same) or max(changed) < min(same):
        return f"{told}: every draw tells them apart"
    return f"{told}: these overlap, so the change may be chance (more --draws tell)"


def _range(times: Sequence[float]) -> str:
    """Return the least and the most of times by draw; "-" where there is one or one is none."""
    if len(times) < 2 or min(times) < 0:
        return "-"
    return f"{min(times):.2f} to {max(times):.2f}"


def _named(row: Jct) -> str:
    """Return a job with its application's number: many may have one name."""
    return f"{row.app:04d} {row.name}"


def _or_dash(time_s: float) -> object:
    return time_s if time_s >= 0 else "-"


def _percent(before: float, after: float) -> float:
    return 100.0 * (after - before) / before if before > 0 else 0.0


commands: list[click.Command] = [replay, whatif]
