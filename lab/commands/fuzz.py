"""`weft fuzz`: the whole cluster in virtual time under swarms of faults, seed by seed."""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import yaml

from lab.worker_pool import WorkerPool
from weft.client.show import echo_json
from weft.client.text import plural
from weft.model.errors import InputError, WeftError
from weft.policies.presets import preset

if TYPE_CHECKING:
    from sim.fuzz import Verdict
    from sim.swarm import Case

SEEDS_PER_BATCH = 10
Found = tuple[int, "Verdict"]


class Given(NamedTuple):
    """What is given for all seeds; what is empty is each seed's own.

    `script` is the text of a faults file.
    """

    preset: str = ""
    pace: str = ""
    script: str = ""
    asker: str = ""
    members: int = 0


@click.command()
@click.option("--seeds", default="0:100", show_default=True, metavar="A:B", help="A to B - 1.")
@click.option(
    "--preset", "preset_", default="", help="One scheduler for all; else each seed's own."
)
@click.option("--asker", default="", help="Instead of the scheduler's; else some seeds' `reuse`.")
@click.option("--pace", type=click.Choice(["yarn", "prompt"]), help="Else each seed's own.")
@click.option(
    "--members",
    default=0,
    type=click.IntRange(min=0, max=100),
    help="Divide each seed's cluster into so many; 0: a tenth of the seeds', 1: none.",
)
@click.option("--faults", default="", metavar="FILE", help="This script instead of the seeds'.")
@click.option("--workers", default=0, help="Processes; 0: one a core.")
@click.option("--out", default="", metavar="DIR", help="Where failing scripts are kept.")
@click.option("--no-shrink", is_flag=True, help="Print failing seeds as they are.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdicts as one document.")
def fuzz(
    seeds: str,
    preset_: str,
    asker: str,
    pace: str | None,
    members: int,
    faults: str,
    workers: int,
    out: str,
    no_shrink: bool,
    as_json: bool,
) -> None:
    """Search for faults that lose work, run it twice or leave something behind.

    Each seed is a small workload on a small cluster with its own choice of crashes, restarts,
    pauses, partitions, wrong clocks, full disks, lost, doubled and late messages. What breaks a
    rule is shrunk to the few faults that do it, and printed as a script for `--faults`.
    """
    first, last = _range(seeds)
    if preset_:
        preset(preset_)
    if asker:
        _check_asker(asker)
    script = Path(faults).read_text(encoding="utf-8") if faults else ""
    given = Given(preset_, pace or "", script, asker, members)
    if sys.stderr.isatty():
        click.echo(f"running {plural(last - first, 'seed')} ...", err=True)
    began_s = time.perf_counter()
    totals: Counter[str] = Counter()
    failed: list[dict[str, Any]] = []
    for seed, verdict in _search(range(first, last), given, workers):
        totals.update(events=verdict.events, tasks=verdict.tasks, repeated=verdict.repeated, runs=1)
        if verdict.problem:
            failed.append(_report(seed, given, not no_shrink, out, as_json))
    wall_s = time.perf_counter() - began_s
    rate = totals["runs"] / wall_s * 60 if wall_s else 0.0
    if as_json:
        echo_json({**totals, "seeds_per_minute": round(rate), "failed": failed})
    else:
        click.echo(
            f"{plural(totals['runs'], 'seed')}, {len(failed)} with a violation; "
            f"{plural(totals['tasks'], 'task')}, "
            f"{totals['repeated']:,} repeated, {totals['events']:,} events; {rate:,.0f} seeds/min"
        )
    if failed:
        raise WeftError(f"{len(failed)} of {totals['runs']} seeds broke a rule")


def _check_asker(name: str) -> None:
    from am.ask.registry import asker

    try:
        asker(name)
    except InputError as error:
        raise InputError("--asker", error.problem) from None


def _range(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    try:
        a = int(first)
        b = int(last) if colon else a + 1
    except ValueError:
        raise InputError("--seeds", f"{text!r} is not A:B") from None
    if not 0 <= a < b:
        raise InputError("--seeds", f"{text!r} holds no seed")
    return a, b


def _search(seeds: range, given: Given, workers: int) -> Iterator[Found]:
    batches = [seeds[i : i + SEEDS_PER_BATCH] for i in range(0, len(seeds), SEEDS_PER_BATCH)]
    several = min(workers or os.cpu_count() or 1, len(batches))
    if several == 1:
        for batch in batches:
            yield from _batch(batch, given)
        return
    with WorkerPool(several) as pool:
        for found in pool.map(_batch, batches, [given] * len(batches)):
            yield from found


def _batch(seeds: range, given: Given) -> list[Found]:
    from sim.fuzz import run

    return [(seed, run(case_of(seed, *given))) for seed in seeds]


def case_of(
    seed: int, preset_: str, pace: str, script: str, asker: str = "", members: int = 0
) -> "Case":
    """Return the case of a seed; `script`: the text of a faults file in place of its own."""
    from sim.faults import faults_from_dict
    from sim.swarm import case

    own = case(seed, preset_, pace, asker=asker, members=members)
    if not script:
        return own
    nodes = [spec.node_id for spec in own.cluster.nodes]
    document = yaml.safe_load(script)
    faults = faults_from_dict(document, nodes, len(own.jobs))
    head = document.get("fuzz", {})
    plain, members = not head.get("varied", False), members or head.get("members", 1)
    return case(seed, preset_, pace, faults, asker=asker, plain=plain, members=members)


def _report(seed: int, given: Given, shrinks: bool, out: str, quiet: bool) -> dict[str, Any]:
    from sim.fuzz import run, shrink

    case = case_of(seed, *given)
    verdict = run(case)
    if shrinks:
        case = shrink(case, verdict.kind)
        verdict = run(case)
    text = script_of(case, verdict)
    if out:
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{seed}.yaml").write_text(text, encoding="utf-8")
    if not quiet:
        click.echo(f"seed {seed}: {verdict.problem} (at {verdict.at_s:.1f} s)\n{text}")
    return {"seed": seed, "problem": verdict.problem, "script": text}


def script_of(case: "Case", verdict: "Verdict") -> str:
    """Return a failing case as a file for `--faults`; its head says how to run it."""
    from sim.faults import faults_to_dict

    pace = "prompt" if case.prompt else "yarn"
    head = {"seed": case.seed, "preset": case.preset, "pace": pace, "problem": verdict.problem}
    head["varied"] = True
    asker = f" --asker {case.asker}" if case.asker else ""
    own = f"--preset {case.preset}{asker} --pace {pace}"
    how = f"# weft fuzz --seeds {case.seed} {own} --faults THIS\n"
    if asker:
        head["asker"] = case.asker
    if case.members > 1:
        head["members"] = case.members
    return how + yaml.safe_dump({"fuzz": head, **faults_to_dict(case.faults)}, sort_keys=False)


commands: list[click.Command] = [fuzz]
