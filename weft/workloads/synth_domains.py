"""Jobs of other domains than data analytics: builds of software, and requests to a service.

Graphene (OSDI 2016), section 9, names the parts of both (compilation, linking, test and code
analysis; spell check before index lookup, video and image lookup in parallel), says that they have
other runtimes and resources, and publishes no numbers: those here are chosen.
"""

from collections.abc import Callable
from math import exp

import numpy as np

from weft.model.job import Edge, Job, Stage

Draw = np.random.Generator
STAGE_TASKS_MAX = 500


def build_job(name: str, rng: Draw, arrival_s: float) -> Job:
    """Return a build: libraries are compiled, analysed and archived, binaries linked and tested.

    One library in five is compiled from generated code. Compilers take a core each, linkers memory
    and disk, analysers cores and memory.
    """
    stages: list[Stage] = []
    libraries = _count(rng, 6, 0.7, 40)
    for number in range(libraries):
        files = _count(rng, 10, 0.9, STAGE_TASKS_MAX)
        above: tuple[Edge, ...] = ()
        if rng.random() < 0.2:
            stages.append(_stage(rng, f"generate{number}", 1, 4.0, (1, 1024, 20, 5)))
            above = (Edge(f"generate{number}"),)
        stages += [
            _stage(rng, f"compile{number}", files, 6.0, (1, 1024, 15, 5), above),
            _stage(rng, f"analyse{number}", max(1, files // 4), 12.0, (2, 4096, 5, 2), above),
            _stage(
                rng, f"archive{number}", 1, 2.0, (0.5, 1024, 200, 20), (Edge(f"compile{number}"),)
            ),
        ]
    for number in range(max(1, libraries // 3)):
        used = rng.choice(libraries, min(libraries, int(rng.integers(2, 6))), replace=False)
        links = tuple(Edge(f"archive{library}") for library in sorted(used.tolist()))
        stages += [
            _stage(rng, f"link{number}", 1, 20.0, (1, 12288, 250, 40), links),
            _stage(
                rng,
                f"test{number}",
                _count(rng, 8, 0.9, STAGE_TASKS_MAX),
                15.0,
                (1.5, 2048, 10, 30),
                (Edge(f"link{number}"),),
            ),
        ]
    return Job(name, tuple(stages), arrival_s=arrival_s)


# A stage has median tasks, median s, and (vcores, memory_mb, disk_mbps, network_mbps).
_VERTICALS: dict[str, tuple[tuple[str, int, float, tuple[float, ...]], ...]] = {
    "web": (("index", 24, 0.02, (1, 2048, 60, 20)), ("rank", 6, 0.03, (3, 1024, 1, 10))),
    "image": (("lookup", 12, 0.03, (0.5, 1024, 150, 80)), ("crop", 4, 0.02, (2, 2048, 5, 60))),
    "video": (("lookup", 8, 0.05, (0.5, 2048, 120, 200)), ("thumb", 4, 0.02, (2, 1024, 20, 100))),
    "news": (("index", 8, 0.015, (1, 4096, 20, 15)), ("fresh", 2, 0.01, (1, 1024, 1, 10))),
    "map": (("tiles", 10, 0.02, (0.5, 3072, 80, 120)), ("route", 2, 0.06, (4, 4096, 1, 10))),
    "advert": (("match", 10, 0.015, (2, 6144, 2, 10)), ("auction", 1, 0.02, (2, 512, 1, 5))),
}


def request_job(name: str, rng: Draw, arrival_s: float) -> Job:
    """Return a request to a service: spell check and profile, parallel verticals, then the page.

    Tasks are remote procedure calls of milliseconds; a vertical asks many servers and joins.
    """
    small = (0.5, 256, 1, 5)
    stages = [
        _stage(rng, "accept", 1, 0.002, small),
        _stage(rng, "spell", 1, 0.01, (1, 1024, 1, 2), (Edge("accept"),)),
        _stage(rng, "profile", 1, 0.015, (0.5, 4096, 20, 5), (Edge("accept"),)),
    ]
    names = sorted(_VERTICALS)
    chosen = rng.choice(len(names), int(rng.integers(2, len(names) + 1)), replace=False)
    ends = []
    for vertical in (names[number] for number in sorted(chosen.tolist())):
        above = ("spell", "profile") if vertical in ("advert", "news") else ("spell",)
        for part, tasks, median_s, demand in _VERTICALS[vertical]:
            label = f"{vertical}-{part}"
            edges = tuple(Edge(parent) for parent in above)
            stages.append(
                _stage(
                    rng, label, _count(rng, tasks, 0.5, STAGE_TASKS_MAX), median_s, demand, edges
                )
            )
            above = (label,)
        ends.append(above[0])
    stages.append(_stage(rng, "merge", 1, 0.01, (2, 1024, 1, 20), tuple(Edge(e) for e in ends)))
    stages.append(_stage(rng, "render", 1, 0.01, (1, 512, 1, 40), (Edge("merge"),)))
    return Job(name, tuple(stages), arrival_s=arrival_s)


DOMAINS: dict[str, Callable[[str, Draw, float], Job]] = {
    "builds": build_job,
    "requests": request_job,
}


def _count(rng: Draw, median: float, sigma: float, most: int) -> int:
    return min(most, max(1, round(median * exp(sigma * float(rng.standard_normal())))))


def _stage(
    rng: Draw,
    name: str,
    tasks: int,
    median_s: float,
    demand: tuple[float, ...],
    parents: tuple[Edge, ...] = (),
) -> Stage:
    """Return a stage whose duration and demands lie around those of its part (log-normal)."""
    duration_s = max(0.001, round(median_s * exp(0.6 * float(rng.standard_normal())), 3))
    around = np.exp(0.4 * rng.standard_normal(len(demand)))
    machine = (16.0, 65536.0, 800.0, 1250.0)
    amounts = [
        round(min(high, max(0.01, mean * float(factor))), 2)
        for mean, factor, high in zip(demand, around, machine, strict=True)
    ]
    names = ("vcores", "memory_mb", "disk_mbps", "network_mbps")
    return Stage(name, tasks, duration_s, dict(zip(names, amounts, strict=True)), parents)
