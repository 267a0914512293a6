"""For tests only: jobs with many stages, of the shapes that real workflows have."""

import random

from weft.model.job import Edge, EdgeKind, Job, Stage

DEMAND = {"vcores": 1.0, "memory_mb": 2048.0}


def _stage(name: str, parents: list[str], tasks: int = 1) -> Stage:
    return Stage(name, tasks, 20.0, DEMAND, tuple(Edge(parent) for parent in parents))


def mosaic(stages: int = 1_276, seed: int = 0) -> Job:
    """Return a job like Montage, a stage a task: images, pairs, one fit, images, one sum."""
    images = (stages - 6) // 4
    pairs = stages - 6 - 2 * images
    rng = random.Random(seed)
    made = [_stage(f"mProject_{i + 1}", []) for i in range(images)]
    for i in range(pairs):
        first = rng.randrange(images - 1)
        made.append(_stage(f"mDiffFit_{i + 1}", [f"mProject_{first + 1}", f"mProject_{first + 2}"]))
    made.append(_stage("mConcatFit", [f"mDiffFit_{i + 1}" for i in range(pairs)]))
    made.append(_stage("mBgModel", ["mConcatFit"]))
    made += [
        _stage(f"mBackground_{i + 1}", ["mBgModel", f"mProject_{i + 1}"]) for i in range(images)
    ]
    made.append(_stage("mImgtbl", [f"mBackground_{i + 1}" for i in range(images)]))
    made += [
        _stage("mAdd", ["mImgtbl"]),
        _stage("mShrink", ["mAdd"]),
        _stage("mViewer", ["mShrink"]),
    ]
    return Job(f"mosaic of {len(made)} stages", tuple(made))


def pipeline(stages: int = 142, samples: int = 4) -> Job:
    """Return a job like nf-core's: long names that differ at their ends, equal steps a sample."""
    prefix = "NFCORE_EXAMPLE.EXAMPLE"
    made = [_stage(f"{prefix}.INPUT_CHECK.SAMPLESHEET_CHECK", [])]
    last = [made[0].name] * samples
    groups = ("PREPARE_GENOME", "ALIGN_STAR", "QUANTIFY_SALMON", "MARK_DUPLICATES_PICARD")
    steps = ("TRIM", "SORT", "INDEX", "STATS", "FLAGSTAT", "IDXSTATS", "FILTER", "ANNOTATE")
    for group in groups:
        for step in steps:
            for i in range(samples):
                above = last[i] if step not in ("STATS", "FLAGSTAT") else made[-samples].name
                made.append(_stage(f"{prefix}.{group}.{step}_{i + 1}", [above], 1 + i % 2 * 5))
                last[i] = made[-1].name
    while len(made) < stages - 1:
        made.append(_stage(f"{prefix}.REPORT_{'ABCDEFGHIJKLMN'[len(made) % 14]}", [last[0]]))
    made.append(_stage(f"{prefix}.MULTIQC", [*last, made[-1].name]))
    return Job(f"pipeline of {len(made)} stages", tuple(made))


def tangle(stages: int = 60, seed: int = 2) -> Job:
    """Return stages that each wait for one or two before, by different kinds of edges."""
    rng = random.Random(seed)
    kinds = [EdgeKind.ALL_TO_ALL, EdgeKind.ONE_TO_ONE, EdgeKind.BROADCAST]
    made: list[Stage] = []
    for i in range(stages):
        before = sorted({rng.randrange(max(0, i - 9), i) for _ in range(2)}) if i else []
        parents = tuple(Edge(made[b].name, rng.choice(kinds)) for b in before)
        made.append(Stage(f"stage {i + 1}", rng.randrange(1, 40), 20.0, DEMAND, parents))
    return Job(f"tangle of {stages} stages", tuple(made))


def wide(tasks: int = 5_000) -> Job:
    """Return one stage of many tasks."""
    return Job(f"{tasks} tasks", (_stage("only", [], tasks),))
