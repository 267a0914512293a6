"""Formats are told by content, options by their defaults, and the commands say what they did."""

import importlib
import json

import click
import pytest
from click.testing import CliRunner

from weft.client.commands_workloads import commands
from weft.model.errors import InputError
from weft.workloads.imported import Imported
from weft.workloads.jobs_file import load_jobs
from weft.workloads.registry import FORMATS, detect, format_of, import_jobs, read_options
from weft.workloads.synth import NAMES

CARBYNE = "# 0: q\n1 0\nM 1 0 0 0 0 0 0 1\n0\n"
SAMPLES = {
    "carbyne": CARBYNE,
    "alibaba2018": "M1,1,j_1,,Terminated,1,2,100,0.2\n",
    "spark": '{"Event":"SparkListenerLogStart","Spark Version":"3.1.1"}\n',
    "wfformat": '{"name": "x", "schemaVersion": "1.5", "workflow": {}}',
    "tpch": '{"benchmark":"TPC-H","stages":[{"durations_ms":{}}]}',
    "sls": '{"am.type": "mapreduce", "job.tasks": []}',
    "swf": "; Version: 2.2\n; MaxProcs: 8\n1 0 0 5 1 1 1 1 5 1 1 1 1 1 1 1 -1 -1\n",
    "psplib": "****\njobs (incl. supersource/sink ):  3\n",
    "weft": "name: a\nstages:\n- {name: s, tasks: 1, duration_s: 1}\n",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_content_tells_the_format(tmp_path, name):
    path = tmp_path / "file"
    path.write_text(SAMPLES[name])
    assert format_of(path) == name
    assert detect([path]) == name


def test_other_forms_of_the_formats_are_told_too(tmp_path):
    for name, text in [
        ("sls", "Avro-Json\n{}\n"),
        ("sls", '{"jobID": "j", "mapTasks": []}'),
        ("sls", '{"num_jobs": 1, "workloads": []}'),
        ("tpch", "graphs:\n  - name: Q1\n    graph:\n      - name: 0\n        children: [1]\n"),
        ("tpch", '{"tpch_q1_50g_maxCores_50": [{"num_tasks": 1}]}'),
        ("alibaba2018", "job_name,task_name,mean_instance_duration_s\n"),
        ("weft", '{"name": "a", "stages": [{"name": "s", "tasks": 1}]}'),
        ("weft", "name: m\nmaster:\n  demand: {vcores: 1, memory_mb: 64}\n"),
        ("weft", '{"name": "m", "master": {"demand": {"vcores": 1}, "recorded": {}}}'),
        (None, "hello"),
        (None, ""),
        (None, "{}"),
        (None, "<xml/>"),
    ]:
        (tmp_path / "file").write_text(text)
        assert format_of(tmp_path / "file") == name, text


def test_unknown_and_mixed_sources_are_refused(tmp_path):
    (tmp_path / "a").write_text("hello")
    with pytest.raises(InputError, match="not of a known format"):
        detect([tmp_path])
    (tmp_path / "b").write_text(CARBYNE)
    assert detect([tmp_path]) == "carbyne"
    (tmp_path / "c").write_text(SAMPLES["sls"])
    with pytest.raises(InputError, match="several formats"):
        detect([tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no file to read"):
        detect([tmp_path / "empty"])


def test_every_format_has_the_agreed_form():
    for name, module_name in FORMATS.items():
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError:
            pytest.skip(f"{module_name} is not written yet")
        assert name == module.FORMAT
        assert callable(module.read)


def test_options_take_the_type_of_their_default():
    def function(sources, *, count: int = 1, size: float = 2.0, name: str = "x", on: bool = False):
        pass

    given = {"count": "3", "size": "1e3", "name": "y", "on": "true"}
    assert read_options(function, given) == {"count": 3, "size": 1000.0, "name": "y", "on": True}
    for bad in ({"count": "x"}, {"size": ""}, {"on": "1"}, {"other": "1"}):
        with pytest.raises(InputError, match="--set"):
            read_options(function, bad)


def test_an_unknown_format_and_no_sources_are_refused(tmp_path):
    with pytest.raises(InputError, match="unknown format 'x'"):
        list(import_jobs("x", [tmp_path], {}, Imported()))
    with pytest.raises(InputError, match="no file"):
        list(import_jobs("carbyne", [], {}, Imported()))


def call(*args):
    group = click.Group(commands={command.name: command for command in commands})
    return CliRunner().invoke(group, [str(arg) for arg in args])


def test_import_writes_jobs_and_says_what_it_dropped(tmp_path):
    (tmp_path / "in.txt").write_text("# 9\n" + CARBYNE)
    out = tmp_path / "out.jsonl.gz"
    result = call("import", "auto", tmp_path / "in.txt", "--out", out)
    assert result.exit_code == 0
    assert "1 job, 1 stage, 1 task; " in result.stdout
    assert "dropped: 1 x job header without a job" in result.stderr
    assert [job.name for job in load_jobs([out])] == ["q"]
    result = call("import", "carbyne", tmp_path / "in.txt", "--out", out, "--json")
    summary = json.loads(result.stdout)
    assert (summary["jobs"], summary["dropped"]) == (1, {"job header without a job": 1})


def test_bad_input_is_an_input_error_and_leaves_no_file(tmp_path):
    (tmp_path / "in.txt").write_text("# 9\n1 0\nM x\n")
    out = tmp_path / "out.jsonl"
    for args in (
        ["import", "carbyne", tmp_path / "in.txt", "--out", out],
        ["import", "auto", tmp_path / "none", "--out", out],
        ["import", "tpch", tmp_path / "in.txt", "--out", out, "--set", "x"],
        ["generate", "graphene", "--out", out, "--set", "arrivals=x"],
    ):
        assert isinstance(call(*args).exception, InputError)
    assert not out.exists()


def test_every_kind_of_workload_can_be_asked_for():
    generate = next(command for command in commands if command.name == "generate")
    kind = next(p for p in generate.params if p.name == "kind")
    assert list(kind.type.choices) == list(NAMES)


def test_generate_is_repeatable_and_takes_options(tmp_path):
    outs = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for out in outs:
        result = call(
            "generate",
            "tpch_like",
            "--jobs",
            4,
            "--seed",
            7,
            "--out",
            out,
            "--set",
            "arrivals=together",
            "--json",
        )
        assert json.loads(result.stdout)["jobs"] == 4
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert {job.arrival_s for job in load_jobs(outs[:1])} == {0.0}
