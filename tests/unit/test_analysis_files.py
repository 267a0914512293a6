"""Files that `weft analyse` is given: whatever they are, read whole or refused with the place."""

import gzip
import os
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from lab.analysis.figures import FIGURES, Facts, Options
from lab.analysis.files import BATCH_INSTANCE
from lab.analysis.tables import open_trace
from lab.cli import weft as commands
from weft.model.errors import InputError

BY_NUMBER = {figure.number: figure for figure in FIGURES}


def row(
    task: str = "M1", start: object = 0, end: object = 10, cpu: object = 100, **more: str
) -> str:
    known = {"job": "a", "status": "Terminated"} | more
    cells = ["i", task, known["job"], 1, known["status"], start, end, "m1", 1, 1, cpu, 1, 2.0, 1]
    return ",".join(map(str, cells)) + "\n"


ROWS = row() + row("R2_1", 12, 20) + row(job="b")


def counted(*paths: Path) -> tuple[int, int]:
    return open_trace([str(path) for path in paths]).used()["batch_instance"]


def put(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


PACKED = gzip.compress((ROWS * 3000).encode())
HOSTILE: dict[str, tuple[bytes | str, str]] = {
    "nothing": (b"", "is empty"),
    "blank lines": (b"\n\n", "is empty"),
    "noise": (b"\xff\xfe\x00\x80" * 99, "no text in UTF-8"),
    "broken parquet": (b"PAR1" + b"\x07" * 99 + b"PAR1", "no readable Parquet file"),
    "gzip of nothing": (gzip.compress(b""), "is empty"),
    "gzip cut in its head": (PACKED[:15], "compressed data is damaged"),
    "gzip cut": (PACKED[:-400], "GZIP"),
    "a line without end": (b"a" * 10**6, "has 1 columns"),
    "a cell without end": (b"i," + b"a" * 200_000 + b"," * 12, "has 2 columns"),
    "numbers of nine columns": (b"1,2,3,4,5,6,7,8,9\n", "has 9 columns"),
    "a column twice": (b"job_name,job_name,task_name\n", "line 1"),
    "a column missing": (",".join(BATCH_INSTANCE[:-1]).encode(), "mem_max"),
    "a number that is none": (ROWS + row(start="soon"), "line 4.*start_time"),
    "a short row": (ROWS + "a,b\n", "line 4.*14"),
    "a quote without end": (ROWS + '"a' + row(), "line 4.*quote"),
    "no row that ended": (row(status="Failed"), "none of 1 rows"),
    "no row": (",".join(BATCH_INSTANCE) + "\n", "none of 0 rows"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_trace_is_one_clear_error(name: str, tmp_path: Path) -> None:
    data, words = HOSTILE[name]
    path = put(tmp_path / "x.csv", data)
    done = CliRunner().invoke(commands, ["analyse", str(path)])
    assert isinstance(done.exception, InputError), done.output
    with pytest.raises(InputError, match=words):
        raise done.exception


def test_a_pipe_or_a_circle_of_links_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "self.csv").symlink_to(tmp_path / "self.csv")
    for name in ("pipe.csv", "self.csv"):
        with pytest.raises(InputError, match="is not there, or no file"):
            open_trace([str(tmp_path / name)])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("packed.csv", gzip.compress(ROWS.encode(), mtime=0)),
        ("plain.csv.gz", ROWS.encode()),
        ("bom.csv", b"\xef\xbb\xbf" + ROWS.encode()),
        ("lines.csv", ROWS.replace("\n", "\r\n").encode()),
        ("any [a]?*.csv", ROWS.encode()),
        ("header.csv", (",".join(BATCH_INSTANCE) + "\n" + ROWS).encode()),
    ],
    # the workers of a run must find the same names, and bytes of gzip hold the time
    ids=["packed", "not packed", "bom", "lines", "pattern", "header"],
)
def test_how_a_file_is_packed_and_called_does_not_matter(
    name: str, data: bytes, tmp_path: Path
) -> None:
    put(tmp_path / "any a?x.csv", 2 * ROWS)  # what a pattern would find
    assert counted(put(tmp_path / name, data)) == (3, 3)


def test_files_of_one_table_may_differ_in_form_but_not_be_the_same_file(tmp_path: Path) -> None:
    plain = put(tmp_path / "a.csv", ROWS)
    turned = [*BATCH_INSTANCE[1:], BATCH_INSTANCE[0]]
    cells = [line.split(",") for line in ROWS.splitlines()]
    lines = [",".join([*line[1:], line[0]]) for line in cells]
    header = put(tmp_path / "b.csv", "\n".join([",".join(turned), *lines]) + "\n")
    numbers = ("start_time", "end_time", "cpu_avg", "cpu_max", "mem_avg", "mem_max")
    columns = {
        name: [int(float(line[at])) if name in numbers else line[at] for line in cells]
        for at, name in enumerate(BATCH_INSTANCE)
    }
    pyarrow.parquet.write_table(arrow.table(columns), tmp_path / "c.pq")
    assert counted(plain, header, tmp_path / "c.pq") == (9, 9)
    (tmp_path / "link.csv").symlink_to(plain)
    with pytest.raises(InputError, match="named twice"):
        open_trace([str(plain), str(tmp_path / "link.csv")])


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is found in rows without fault."""
    path = put(tmp_path_factory.mktemp("good") / "y.csv", ROWS)
    return CliRunner().invoke(commands, ["analyse", str(path), "--json"]).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "bad",
    [
        row(start="nan"),
        row(end="nan"),
        row(end=-1, start=-5),
        row(start=1e300, end=1e301),
        row(cpu="inf"),
        row(cpu=-100),
        row(start="", end=""),
        row(end=5, start=9),
    ],
)
def test_rows_that_say_no_number_are_left_out_and_counted(
    bad: str, tmp_path: Path, good: str
) -> None:
    path = put(tmp_path / "x.csv", ROWS + bad)
    done = CliRunner().invoke(commands, ["analyse", str(path), "--json"])
    assert done.exit_code == 0, done.output
    assert "1 of 4 rows left out" in done.stderr
    assert done.stdout == good


def test_amounts_may_be_blank(tmp_path: Path) -> None:
    assert counted(put(tmp_path / "x.csv", ROWS + row(cpu=""))) == (4, 4)


def test_names_with_long_numbers_have_none(tmp_path: Path) -> None:
    path = put(tmp_path / "x.csv", ROWS + row("M" + 30 * "9") + row("R3_" + 30 * "9"))
    numbers = Facts(open_trace([str(path)]), Options()).tasks.execute().set_index("task")["number"]
    assert numbers["R2_1"] == 2
    assert numbers["R3_" + 30 * "9"] == 3
    assert numbers.isna()["M" + 30 * "9"]


@pytest.mark.slow
def test_a_critical_path_may_be_long_and_a_circle_ends(tmp_path: Path) -> None:
    chain = row("M1", 0, 1) + "".join(row(f"M{n}_{n - 1}", n, n + 1) for n in range(2, 131))
    circle = row("M1_2", 0, 9, job="c") + row("M2_1", 0, 8, job="c")
    path = put(tmp_path / "x.csv", chain + circle)
    found = Facts(open_trace([str(path)]), Options()).critical.execute()
    assert sorted(found["number"][found["job"] == "a"]) == list(range(1, 131))
    assert sorted(found["number"][found["job"] == "c"]) == [1, 2]
