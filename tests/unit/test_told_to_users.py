"""What commands tell their users: what is missing, what was chosen, where and when."""

import json
import re
import socket
import subprocess
import sys
from contextlib import nullcontext
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

import lab.bench.dask
import lab.bench.live
import lab.bench.sim
from lab.cli import main, weft
from lab.commands import predict
from lab.commands.plan import explained
from lab.report import plots
from lab.report.comparing import read_run, read_runs
from lab.studies import grid
from lab.studies.grid import read_grid
from rm.ledger.asks import AskRows
from rm.ledger.ledger import AppColumns, NodeColumns, QueueColumns, UserColumns
from sim.replay.predict import Band, Prediction
from testkit.manager import Rig
from testkit.terminal import in_terminal
from weft.client import commands_cluster, local, logs, progress, show
from weft.client.commands_local import _settings
from weft.client.logs import Wanted, print_logs
from weft.client.naming import find_open
from weft.model.errors import InputError, WeftError
from weft.model.extras import MissingExtraError
from weft.policies.presets import preset, short_labels
from weft.protocol.requests import ContainerReport

JOB = """
name: small
stages: [{name: a, tasks: 2, duration_s: 2, demand: {vcores: 1, memory_mb: 512}}]
"""


def test_a_simulation_says_at_which_pace_it_ran(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    command = ["simulate", str(tmp_path / "job.yaml"), "--cluster", "1x4vcores,4096memory_mb"]
    for pace in ("yarn", "prompt"):
        said = CliRunner().invoke(weft, [*command, "--pace", pace])
        assert f"pace {pace}: " in said.output, said.output


def test_the_troublesome_tasks_are_named() -> None:
    part = {"tasks": 5, "troublesome": 3, "troublesome_ranges": [[1, 2], [4, 4]]}
    names = [f"a[{n}]" for n in range(5)]
    _, line = explained({"parts": [part]}, names)
    assert line == "  troublesome: 3 (a[1] to a[2], a[4])"


def test_a_missing_value_names_the_help_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    for words, wanted in ((["submit", "--queue"], "weft submit"), (["--nothing"], "weft")):
        with pytest.raises(SystemExit):
            main(words)
        assert capsys.readouterr().err.endswith(f"({wanted} --help)\n")


@pytest.mark.parametrize(
    ("key", "value"), [("seeds", "-1"), ("seeds", "a"), ("loads", "-0.5"), ("loads", "true")]
)
def test_a_wrong_value_of_a_grid_names_file_and_key(tmp_path: Path, key: str, value: str) -> None:
    file = tmp_path / "grid.yaml"
    text = "workloads: [j], clusters: [2x4vcores], schedulers: [fifo]"
    file.write_text(f"{{{text}, {key}: [{value}]}}")
    with pytest.raises(InputError, match=f"grid.yaml: {key}: expected .*numbers"):
        read_grid(file)


def test_a_study_at_80_columns_names_a_matcher_of_ones_own() -> None:
    own = "my_policies:EarliestDeadline+bfs+all_ready"
    assert short_labels(["fifo", own]) == {"fifo": "fifo", own: "EarliestDeadline"}
    other = "my_policies:EarliestDeadline+bfs+all"
    assert short_labels([own, other])[own] == "EarliestDeadline+bfs+all_ready"
    twin = "theirs:EarliestDeadline+bfs+all_ready"
    assert short_labels([own, twin])[own] == own


def test_a_number_of_nodes_that_contradicts_the_cluster_is_refused() -> None:
    said = CliRunner().invoke(weft, ["up", "--nodes", "2", "--cluster", "3x4vcores,8192memory_mb"])
    assert str(said.exception) == "--nodes: 2 contradicts the cluster's 3: leave one out"


def test_a_port_in_use_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setitem(local.PORTS, "rm", (port, 0))
        cluster = local.LocalCluster(local.LocalSettings(nodes=1, fixed_ports=True))
        with pytest.raises(WeftError, match=f"port {port} is in use, .*--any-ports"), cluster:
            pass
    assert not cluster.processes


def test_long_commands_say_at_once_in_a_terminal_that_they_run(tmp_path: Path) -> None:
    for words, wanted in (
        (["fuzz", "--seeds", "3:4"], "running 1 seed ...\n"),
        (["bench", "codec", "--psplib", "."], "running the cases of weft bench codec"),
    ):
        _, sent = in_terminal(words, tmp_path)
        assert sent.replace("\r", "").startswith(wanted)
        assert wanted not in CliRunner().invoke(weft, words).stderr, (
            "a script reads what is printed"
        )


def test_the_files_of_a_grid_are_found_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grids").mkdir()
    (tmp_path / "grids" / "job.yaml").write_text(JOB)
    text = "{workloads: [job.yaml, elsewhere.yaml], clusters: [2x4vcores], schedulers: [fifo]}"
    (tmp_path / "grids" / "grid.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    found = read_grid(Path("grids/grid.yaml"))
    assert found.workloads == ("grids/job.yaml", "elsewhere.yaml")
    assert found.clusters == ("2x4vcores",)


DOCS = Path(__file__).parents[2] / "docs"


def tables(page: str) -> dict[str, list[str]]:
    """The code words in the first column of each table of a page, by the table's heading."""
    found: dict[str, list[str]] = {}
    head = ""
    for before, line in pairwise((DOCS / page).read_text().splitlines()):
        if not line.startswith("|"):
            continue
        first = line.split("|")[1]
        if not before.startswith("|"):
            head = first.strip()
        elif not first.startswith("---"):
            found.setdefault(head, []).extend(re.findall(r"`([a-z_]+)", first))
    return found


def test_the_keys_of_a_grid_are_those_of_the_docs() -> None:
    assert sorted(tables("formats.md")["key of GRID"]) == sorted(grid._KEYS)


# What the core and the helpers of matchers need of a view.
NOT_FOR_MATCHERS = {"idle_limits", "room", "sites", "watch", "set_aside", "put_back"}
NOT_FOR_MATCHERS |= {"forget", "ban"}


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("`view.rows`", AskRows),
        ("`view.nodes`", NodeColumns),
        ("`view.apps`", AppColumns),
        ("`view.users`", UserColumns),
        ("`view.by_queue`", QueueColumns),
    ],
)
def test_the_columns_that_a_matcher_sees_are_those_of_the_docs(head: str, kind: type) -> None:
    (named,) = [words for name, words in tables("policies.md").items() if name.startswith(head)]
    assert sorted(named) == sorted(kind.__annotations__)


def test_the_view_of_a_matcher_is_that_of_the_docs() -> None:
    rig = Rig()
    rig.add_node("n1")
    view = rig.manager.books.view
    public = {name for name in dir(view) if not name.startswith("_")}
    found = tables("policies.md")
    assert sorted(found["of the view"]) == sorted(public - NOT_FOR_MATCHERS)
    assert [
        name for name in found["`view.queues`, by queue slot"] if not hasattr(view.queues, name)
    ] == []


def _without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


def test_a_bench_names_the_extra_that_a_case_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "dask")
    with pytest.raises(MissingExtraError, match=r"pip install 'weft-rm\[dask\]'"):
        lab.bench.dask.measure("Dask", 1, 1)
    (row,) = [lab.bench.live._tried("Dask", lambda name: lab.bench.dask.measure(name, 1, 1))]
    assert "weft-rm[dask]" in str(row["skipped"])


def test_a_bench_names_the_folder_of_data_that_it_misses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_DATA", str(tmp_path))
    row = lab.bench.sim.case("alibaba hour slice, 4,000 nodes")
    assert "WEFT_DATA" in str(row["skipped"])


def test_the_environment_of_agents_names_its_extra() -> None:
    code = "import sys; sys.modules['gymnasium'] = None; import weft.gym"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert "pip install 'weft-rm[gym]'" in done.stderr.splitlines()[-1]


def test_settings_of_a_live_cluster_are_written_as_for_a_simulation() -> None:
    given: dict[str, Any] = {"rm_set": ("max_attempts=5",), "nm_set": (), "am_set": ()}
    given |= {"web_set": (), "nodes": None, "cluster": ""}
    pairs = ["manager.max_attempts=3", "node.log_size_mb=1", "matcher.fill=all"]
    found = _settings(given | {"options": pairs, "scheduler": "fifo"})
    assert found.flags["rm"] == ("max_attempts=3", "max_attempts=5")
    assert found.flags["nm"] == ("log_size_mb=1",)
    assert found.options == {"matcher.fill": "all"}
    with pytest.raises(InputError, match=r"manager\.NAME"):
        _settings({**given, "rm_set": (), "options": ["boss.x=1"], "scheduler": "fifo"})


def test_yarns_wire_is_refused_where_nothing_would_run() -> None:
    said = CliRunner().invoke(weft, ["up", "--hadoop", "--any-ports"], standalone_mode=False)
    assert "--mode process" in str(said.exception)


def test_one_word_for_processes_and_one_for_draws() -> None:
    for command, flag in (
        ("fuzz", "--workers"),
        ("replay", "--workers"),
        ("study", "--workers"),
        ("whatif", "--draws"),
        ("predict", "--draws"),
    ):
        assert flag in CliRunner().invoke(weft, [command, "--help"]).output
        assert "--jobs" not in CliRunner().invoke(weft, [command, "--help"]).output


def test_a_time_of_day_goes_by_the_pace_of_the_clusters_clock() -> None:
    """Sixty seconds of a clock ten times as fast are six of the wall's."""
    found = show.time_of_day(940.0, 1_000.0, 10.0)
    wanted = datetime.now().astimezone() - timedelta(seconds=6)
    near = {f"{wanted + timedelta(seconds=s):%H:%M:%S}" for s in (-1, 0, 1)}
    assert found.split()[-1] in near
    assert len(show.time_of_day(0.0, 2 * 86_400.0, 1.0)) == len("2026-11-27 02:07:48")


def test_a_clock_that_runs_faster_is_told_where_durations_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for scale in (0.0, 1.0):
        show.say_pace(scale)
    assert capsys.readouterr().out == ""
    show.say_pace(10.0)
    assert capsys.readouterr().out.startswith("clock x 10: durations are by the cluster's clock")


def test_a_band_without_width_is_one_number_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    point, wide = Band(135.12, 135.12, 135.12), Band(130.0, 135.0, 140.0)
    runs = [Prediction(1, "j", False, None, one, 0) for one in (point, wide)]
    predict._show(100.0, runs[:1], {}, None, as_json=False)
    told = capsys.readouterr().out
    assert "35.1 to 35.1" not in told
    assert "one number is no band: no task that ended took longer or shorter" in told
    predict._show(100.0, runs[1:], {}, None, as_json=False)
    told = capsys.readouterr().out
    assert "30.0 to 40.0" in told
    assert "one number" not in told


def test_a_run_that_is_not_there_is_named_by_its_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nope: no such folder: runs are what weft simulate"):
        read_run(tmp_path / "nope")


def test_who_reads_events_along_is_spared_numbers_that_are_no_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gauge = {"fact": "Gauge", "now_s": 1.0, "name": "weft_matches", "value": 0.0, "labels": []}
    lost = {"fact": "NodeChanged", "now_s": 2.0, "node": "n1", "state": "LOST", "capacity": []}
    client = SimpleNamespace(
        events=lambda: iter([gauge, lost]),
        metrics=lambda: SimpleNamespace(cluster_ts=1, capacity={}, now_s=3.0),
        manager=lambda: SimpleNamespace(time_scale=1.0),
    )
    monkeypatch.setattr(commands_cluster, "connected", lambda address: nullcontext(client))
    read = CliRunner().invoke(weft, ["events"], catch_exceptions=False)
    assert "NodeChanged" in read.output
    assert "Gauge" not in read.output
    data = CliRunner().invoke(weft, ["events", "--json"], catch_exceptions=False)
    assert "Gauge" in data.output


class Unwritten:
    """A cluster whose tasks are emulated."""

    def containers(self, app: int) -> tuple[ContainerReport, ...]:
        return tuple(
            ContainerReport(number, "n1", "a", number, 0, "SUCCEEDED", 1.0, 2.0, "n1:1")
            for number in range(24)
        )

    def read_log(self, report: ContainerReport, stream: str) -> bytes:
        raise InputError("container", self.why)

    def __init__(self, why: str) -> None:
        self.why = why


def test_logs_that_nobody_wrote_are_told_in_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    kept = Unwritten("node 'n1' has no stdout of this container")
    print_logs(kept, 1, Wanted("", None, ("stdout",), None))  # type: ignore[arg-type]
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 2
    assert "24 logs cannot be read" in said.err


class Talking:
    """A cluster on which two tasks write, and of one the node has not told which it is."""

    cluster_ts = 1_700_000_000
    left = 1

    def containers(self, app: int) -> tuple[ContainerReport, ...]:
        return tuple(
            ContainerReport(number, "n1", "work", index, 0, "ACQUIRED", 1.0, 0.0)
            for number, index in ((1, 3), (2, 5), (3, -1))
        )

    def read_on(self, report: ContainerReport, stream: str, skip: int) -> tuple[bytes, int]:
        return f"tick {skip}\n".encode(), skip + 1

    def application(self, app: int) -> SimpleNamespace:
        self.left -= 1
        return SimpleNamespace(state="RUNNING" if self.left else "FINISHED")


def test_a_line_that_is_followed_stands_below_the_name_of_its_task(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(logs, "POLL_S", 0.0)
    logs.follow_logs(Talking(), 1, Wanted("", None, ("stdout",)))  # type: ignore[arg-type]
    said = capfdbinary.readouterr().out.decode().splitlines()
    titles = [line for line in said if line.startswith("==>")]
    assert titles[0].startswith("==> work[running in container_")
    assert titles[1:3] == ["==> work[3] attempt 0 stdout <==", "==> work[5] attempt 0 stdout <=="]
    assert len(set(titles)) == 3
    assert said[1::2] == ["tick 0"] * 3 + ["tick 1"] * 3, "each line below its task's own"


class OneStage:
    """An application whose only stage has three tasks, and no container yet."""

    def containers(self, app: int) -> tuple[ContainerReport, ...]:
        return ()

    def application(self, app: int) -> SimpleNamespace:
        return SimpleNamespace(stages=(SimpleNamespace(name="split", tasks=3),))


@pytest.mark.parametrize(
    ("stage", "task", "says"),
    [
        ("split", 5, "no task 5: stage 'split' has tasks 0 to 2"),
        ("", 3, "no task 3: its largest stage has tasks 0 to 2"),
        ("map", None, "unknown stage 'map'; known: split"),
        ("split", 2, "no container of task 2 of stage 'split' is known for this application"),
    ],
)
def test_logs_that_are_not_there_say_what_is(stage: str, task: int | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        print_logs(OneStage(), 1, Wanted(stage, task))  # type: ignore[arg-type]


def test_a_scheduler_that_is_misspelt_is_told_what_is_like_it() -> None:
    with pytest.raises(InputError, match=r"'graphen' \(did you mean graphene\?\); known: "):
        preset("graphen")


def test_kill_takes_a_name_where_one_application_is_meant() -> None:
    def of(number: int, name: str, state: str) -> SimpleNamespace:
        return SimpleNamespace(app_id=number, cluster_ts=9, name=name, state=state)

    reports = [of(1, "a", "FINISHED"), of(2, "a", "RUNNING"), of(3, "b", "RUNNING")]
    reports += [of(4, "b", "ACCEPTED"), of(5, "c", "FAILED")]
    client: Any = SimpleNamespace(applications=lambda **named: reports)
    assert find_open(client, "a") == 2
    for text, words in (
        ("b", "'b' is the name of application_9_0003, application_9_0004: name an id"),
        ("c", "every application named 'c' had ended before"),
        ("d", "'d' is no id, number or name of a job"),
        ("-", "- may be another one by now"),
    ):
        with pytest.raises(InputError, match=words):
            find_open(client, text)


def test_a_matcher_of_another_package_is_predicted_with_or_said_to_be_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_line.py").write_text(
        "from rm.match.fifo import FifoMatcher\n\n\n"
        "class Own(FifoMatcher):\n"
        "    def __init__(self, knob: float = 1.0) -> None:\n        super().__init__()\n"
    )
    told = {"matcher": "own_line:Own", "matcher.knob": "2.0", "state_dir": ""}
    chosen = predict._scheduler("own", told)
    assert (chosen.matcher, chosen.matcher_options) == ("own_line:Own", {"knob": "2.0"})
    assert predict._scheduler("tetris", {"matcher": "tetris"}) == preset("tetris")
    with pytest.raises(InputError, match="runs the matcher 'gone:One', which cannot be made here"):
        predict._scheduler("one", {"matcher": "gone:One"})


def test_bars_count_by_the_clock_of_what_they_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "monotonic", lambda: 3.0)
    assert progress.bars(Console(), scale=20.0).get_time() == 60.0


def test_runs_and_rows_that_share_a_name_are_told_apart(tmp_path: Path) -> None:
    """By what the grid says of them, or by their whole paths."""
    job = {"name": "a", "stages": [{"name": "s", "tasks": 1, "duration_s": 1}]}
    (tmp_path / "jobs.json").write_text(json.dumps(job))
    lines = [{"scheduler": "tetris", "options": {"matcher.fairness": x}} for x in (0.0, 0.5)]
    grid_file = tmp_path / "grid.json"
    grid_file.write_text(
        json.dumps({"workloads": ["jobs.json"], "clusters": ["1x4vcores"], "schedulers": lines})
    )
    run = CliRunner().invoke(
        weft, ["study", str(grid_file), "--out", str(tmp_path / "rows"), "--workers", "1"]
    )
    assert "1/2 tetris matcher.fairness=0.0 seed 0\n" in run.stderr, run.output
    assert "2/2 tetris matcher.fairness=0.5 seed 0\n" in run.stderr
    folders = [tmp_path / one / "tez" for one in ("before", "after")]
    for folder in folders:
        asked = ["simulate", str(tmp_path / "jobs.json"), "--cluster", "1x4vcores"]
        CliRunner().invoke(weft, [*asked, "--out", str(folder)], catch_exceptions=False)
    assert [one.name for one in read_runs(folders)] == list(map(str, folders))
    assert [one.name for one in read_runs(folders[:1])] == ["tez"]


def test_bars_of_a_study_are_named_by_what_tells_them_apart() -> None:
    one = dict.fromkeys(("workload", "cluster", "load", "arrivals", "estimate_error"), "")
    rows = [
        one | {"scheduler": name, "options": options}
        for name, options in (("tez", {}), ("a:Own+bfs+all_ready", {"matcher.power": "2"}))
    ]
    assert [plots._label(row, rows) for row in rows] == ["tez", "Own, matcher.power=2"]


def test_where_no_manager_is_what_starts_one_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        # Nobody listens there, and nobody else can.
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SystemExit):
            main(["apps", "--rm", address, "--connect-timeout", "0.1"])
    told = capsys.readouterr().err
    assert told.endswith("refused; weft up starts one, --rm or WEFT_RM_ADDRESS names another\n")
