"""The analysis of a production trace, against the same worked out by hand and in plain Python."""

import csv
import gzip
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lab.analysis.figures import FIGURES, LOG_BINS_PER_DOUBLING, Facts, Options
from lab.analysis.files import BATCH_INSTANCE, FORMS
from lab.analysis.tables import Trace, open_trace
from lab.cli import weft as commands
from weft.model.errors import InputError

BY_NUMBER = {figure.number: figure for figure in FIGURES}


def instance(job: str, task: str, start: float, end: float, machine: str, **more: Any) -> list[Any]:
    row: dict[str, Any] = dict.fromkeys(BATCH_INSTANCE, 1)
    row |= {
        "instance_name": f"i_{job}_{task}_{start}",
        "job_name": job,
        "task_name": task,
        "status": "Terminated",
        "start_time": start,
        "end_time": end,
        "machine_id": machine,
        "cpu_avg": 100,
        "mem_avg": 2.0,
        **more,
    }
    return list(row.values())


def written(path: Path, rows: list[list[Any]], header: tuple[str, ...] = ()) -> Path:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="") as file:
        csv.writer(file).writerows([header, *rows] if header else rows)
    return path


def small(folder: Path) -> Trace:
    """Job a: M1 in two instances, then R2_1 after a delay of 4 s; job b: one task of 100 s."""
    rows = [
        instance("a", "M1", 0, 10, "m1"),
        instance("a", "M1", 3, 20, "m2"),
        instance("a", "R2_1", 24, 30, "m1", cpu_avg=200, mem_avg=4.0),
        instance("b", "task_xyz", 0, 100, "m1"),
        instance("a", "M1", 0, 5, "m3", status="Failed"),
    ]
    tasks = [
        ["M1", 2, "a", 1, "Terminated", 0, 20, 200, 4],
        ["R2_1", 1, "a", 1, "Terminated", 0, 30, 100, 1],
        ["task_xyz", 1, "b", 1, "Terminated", 0, 100, 50, ""],
        ["R9_1", "", "c", 1, "Waiting", 0, 0, 50, 1],
    ]
    files = [written(folder / "batch_instance.csv.gz", rows), written(folder / "t.csv", tasks)]
    return open_trace([str(path) for path in files])


def made(facts: Facts, number: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = BY_NUMBER[number].make(facts).execute().to_dict("records")
    return found


@pytest.mark.slow
def test_a_small_trace_by_hand(tmp_path: Path) -> None:
    facts = Facts(small(tmp_path), Options(machines=2, cores=4.0))
    assert [(r["size"][3:], r["jobs"]) for r in made(facts, "2.1")] == [
        ("under a minute", 1),
        ("under an hour", 1),
    ]
    delays = facts.delays.execute().sort_values(["job", "delay_s"])
    assert list(zip(delays["job"], delays["delay_s"], delays["completion_s"], strict=True)) == [
        ("a", 0.0, 10.0),
        ("a", 3.0, 20.0),
        ("a", 4.0, 10.0),
        ("b", 0.0, 100.0),
    ]
    assert made(facts, "2.2")[-1]["share"] == 1.0
    assert [r["instances"] for r in made(facts, "2.2")] == [2, 1, 1]
    path = facts.critical.execute()
    assert sorted(zip(path["job"], path["number"], strict=True)) == [("a", 1), ("a", 2)]
    assert sum(r["instances"] for r in made(facts, "2.9")) == 3  # b's task has no number
    used = facts.use.execute().set_index("at_s")
    assert dict(used["cpu"]) == {0: 2.0, 3: 3.0, 10: 2.0, 20: 1.0, 24: 3.0, 30: 1.0, 100: 0.0}
    (bin_,) = made(facts, "2.8")
    mean = (2 * 3 + 3 * 7 + 2 * 10 + 1 * 4 + 3 * 6 + 1 * 70) / 101  # the last level lasts 1 s
    assert bin_["cores"] == pytest.approx(mean / (2 * 4.0))
    ratios = {(r["of"], r["log2_of_asked_over_used"]): r["tasks"] for r in made(facts, "2.10")}
    assert ratios == {
        ("cpu", 1.0): 1,
        ("cpu", -1.0): 2,
        ("memory", 1.0): 1,
        ("memory", -2.0): 1,
    }
    assert [(r["instances"], r["machines"]) for r in made(facts, "2.11")] == [(1, 2)]
    counts = {r["instances"]: r["machines"] for r in made(facts, "2.12")}
    assert counts == {
        1.0: 1,
        2.0 ** (math.floor(math.log2(3) * LOG_BINS_PER_DOUBLING) / LOG_BINS_PER_DOUBLING): 1,
    }


@pytest.mark.parametrize("seed", range(4))
def test_delays_and_paths_are_those_of_plain_python(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    rows, ends, first = [], {}, {}
    parents: dict[tuple[str, int], list[int]] = {}
    for job in ("a", "b", "c"):
        for number in range(1, 8):
            behind = [p for p in range(1, number) if rng.random() < 0.4]
            parents[job, number] = behind
            name = "_".join([f"M{number}", *map(str, behind)])
            for _ in range(int(rng.integers(1, 6))):
                start = int(rng.integers(0, 500))
                end = start + int(rng.integers(0, 200))
                rows.append(instance(job, name, start, end, f"m{rng.integers(4)}"))
                ends[job, number] = max(end, ends.get((job, number), 0))
                first[job] = min(start, first.get(job, start))
    trace = open_trace([str(written(tmp_path / "i.csv", rows, BATCH_INSTANCE))])
    facts = Facts(trace, Options())

    def number_of(row: list[Any]) -> tuple[str, int]:
        return row[2], int(row[1].partition("_")[0][1:])

    wanted = Counter()
    for row in rows:
        job, number = number_of(row)
        ready = max((ends[job, p] for p in parents[job, number]), default=first[job])
        wanted[job, number, float(max(row[5] - ready, 0))] += 1
    found = facts.delays.execute()
    keys = zip(found["job"], found["number"], found["delay_s"], strict=True)
    assert Counter((j, int(n), d) for j, n, d in keys) == wanted
    paths = set()
    for job in ("a", "b", "c"):
        at = max((n for j, n in parents if j == job), key=lambda n: (ends[job, n], n))
        while at:
            paths.add((job, at))
            at = max(parents[job, at], key=lambda n: (ends[job, n], n), default=0)
    critical = facts.critical.execute()
    assert set(zip(critical["job"], critical["number"], strict=True)) == paths


def test_what_a_trace_lacks_is_said_and_refused(tmp_path: Path) -> None:
    rows = [[0, "a", "M1", 30, 50, 0.3, 4], [0, "a", "R2_1", 90, 50, "", 2]]
    path = written(tmp_path / "hour.csv", rows, FORMS["hour_slice"])
    done = CliRunner().invoke(commands, ["analyse", str(path), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["2.1"]["rows"] == [{"size": "2: under an hour", "jobs": 1, "share": 1.0}]
    assert "machine_id" in found["2.11"]["refused"]
    assert sum("refused" in figure for figure in found.values()) == 11


def test_what_has_no_correlation_is_null_in_json(tmp_path: Path) -> None:
    rows = [instance("a", "M1", 0, 10, "m1"), instance("b", "M1", 0, 10, "m1")]
    path = written(tmp_path / "i.csv", rows)
    done = CliRunner().invoke(commands, ["analyse", str(path), "--figure", "2.4", "--json"])
    found = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert [row["r"] for row in found["2.4"]["rows"]] == [None] * 3


@pytest.mark.slow
def test_every_figure_is_written_with_its_picture(tmp_path: Path) -> None:
    small(tmp_path)
    out = tmp_path / "out"
    words = ["analyse", str(tmp_path / "batch_instance.csv.gz"), str(tmp_path / "t.csv")]
    done = CliRunner().invoke(commands, [*words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "refused" not in done.output
    for figure in FIGURES:
        assert (out / f"figure-{figure.number}.csv").read_text().count("\n") >= 2
        picture = (out / f"figure-{figure.number}.svg").read_text()
        assert picture.startswith("<?xml")
        texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
        assert not [text for text in texts if "_" in text or text.startswith("1:")], (
            "a column's own name"
        )
        assert not [text for text in texts if re.fullmatch(r"\d+\.\d{5,}|-0\.00|nan", text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [("a,b,c\n", "has 3 columns"), ("", "is empty")],
)
def test_files_of_no_form_are_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        open_trace([str(path)])
    with pytest.raises(InputError, match="is not there"):
        open_trace([str(tmp_path / "none.csv")])


def test_a_broken_row_is_one_clear_error(tmp_path: Path) -> None:
    rows = [[0, "a", "M1", 30, 50, 0.3, 4], [0, "a", "R2_1", "soon", 50, 0.3, 2]]
    path = written(tmp_path / "hour.csv", rows, FORMS["hour_slice"])
    done = CliRunner().invoke(commands, ["analyse", str(path), "--figure", "2.1"])
    assert done.exit_code != 0
    assert isinstance(done.exception, InputError)
    assert "hour.csv line 3" in str(done.exception)
    assert "duration_s" in str(done.exception)


@pytest.mark.slow
def test_parquet_and_tables_of_a_database_answer_alike(tmp_path: Path) -> None:
    import duckdb

    small(tmp_path)
    source = tmp_path / "batch_instance.csv.gz"
    names = ", ".join(f"'{name}'" for name in BATCH_INSTANCE)
    parquet, database = tmp_path / "i.parquet", tmp_path / "trace.db"
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            f"CREATE TABLE recorded AS FROM read_csv('{source}', header=false, names=[{names}])"
        )
        connection.execute(f"COPY recorded TO '{parquet}'")
    answers = []
    for words in ([str(parquet)], ["recorded", "--connect", f"duckdb://{database}"], [str(source)]):
        done = CliRunner().invoke(commands, ["analyse", *words, "--figure", "2.5", "--json"])
        assert done.exit_code == 0, done.output
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1] == answers[2]
