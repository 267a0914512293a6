"""Record TPC-H queries on Spark and turn their event logs into the sample jobs of `weft demo`.

Two steps, since Spark lives in an environment of its own (`pip install pyspark duckdb==1.1.3`,
Java 17):

    python tools/record_tpch.py record --out DIR [--sf 5]    # in that environment
    python tools/record_tpch.py convert --logs DIR            # in Weft's environment
"""

import argparse
import json
import platform
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).resolve().parents[1] / "weft" / "client" / "samples" / "tpch"

# Queries whose whole plan is joined by shuffles. Those with an uncorrelated scalar subquery (11,
# 15, 22) or NOT IN (16) are left out: Spark runs the subquery as a job, or broadcasts it, and no
# log shows the edge to the rest.
QUERIES = (2, 3, 5, 7, 8, 9, 10, 12, 13, 17, 18, 20, 21)

# Files of a table = tasks of the stage that scans it.
FILES = {
    "lineitem": 24,
    "orders": 12,
    "partsupp": 10,
    "customer": 8,
    "part": 8,
    "supplier": 4,
    "nation": 1,
    "region": 1,
}
EXECUTOR_TASK_THREADS = 2

SPARK_CONF = {
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # One file, one task: the cost of opening a file is said to be a whole split.
    "spark.sql.files.openCostInBytes": str(128 * 2**20),
    # Every join is a shuffle, so that the log shows every edge (a broadcast shows none).
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    # Shuffles are cut by size, so that stages differ in width.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "24",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}

# What of an event log is kept: no host, user, path, environment or query plan is.
KEPT_EVENTS = {
    "SparkListenerLogStart",
    "SparkListenerApplicationStart",
    "SparkListenerApplicationEnd",
    "SparkListenerJobStart",
    "SparkListenerJobEnd",
    "SparkListenerStageSubmitted",
    "SparkListenerStageCompleted",
    "SparkListenerTaskEnd",
}
STRIPPED_KEYS = {
    "Accumulables",
    "App ID",
    "Callsite",
    "Details",
    "Executor ID",
    "Host",
    "Name",
    "Scope",
    "Task Executor Metrics",
    "Updated Blocks",
    "User",
}
KEPT_PROPERTIES = {"spark.sql.execution.id"}


def strip(value: Any) -> Any:
    """Return an event without what tells of the machine; the structure stays Spark's."""
    if isinstance(value, list):
        return [strip(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: strip(item) for key, item in value.items() if key not in STRIPPED_KEYS}
    if "Properties" in kept:
        kept["Properties"] = {k: v for k, v in kept["Properties"].items() if k in KEPT_PROPERTIES}
    if "Stage Name" in kept:
        kept["Stage Name"] = re.sub(r" at .*", "", kept["Stage Name"])
    return kept


def stripped_lines(log: Path) -> Iterator[str]:
    """Yield the lines of a Spark event log that the importer needs, stripped."""
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event["Event"] in KEPT_EVENTS:
                yield json.dumps(strip(event), separators=(",", ":")) + "\n"


def generate(folder: Path, scale: float) -> dict[int, str]:
    """Write the tables as Parquet files; return the text of every query by its number."""
    import duckdb

    database = duckdb.connect()
    database.execute("LOAD tpch")
    if not (folder / "region").exists():
        database.execute(f"CALL dbgen(sf={scale})")
        for table, files in FILES.items():
            (folder / table).mkdir(parents=True)
            rows = database.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
            for i in range(files):
                low, high = rows * i // files, rows * (i + 1) // files
                database.execute(
                    f"COPY (SELECT * FROM {table} WHERE rowid >= {low} AND rowid < {high}) "
                    f"TO '{folder / table / f'{i:02d}.parquet'}' (FORMAT parquet)"
                )
    return dict(database.execute("FROM tpch_queries()").fetchall())


def session(name: str, data: Path, log_folder: Path | None, advisory_kb: int) -> Any:
    """Return a Spark session with the tables as views; without a log folder it records nothing."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(f"local[{EXECUTOR_TASK_THREADS}]")
    for key, value in SPARK_CONF.items():
        builder = builder.config(key, value)
    builder = builder.config(
        "spark.sql.adaptive.advisoryPartitionSizeInBytes", str(advisory_kb * 2**10)
    )
    builder = builder.config("spark.eventLog.enabled", str(log_folder is not None).lower())
    if log_folder is not None:
        builder = builder.config("spark.eventLog.dir", log_folder.as_uri())
        builder = builder.config("spark.eventLog.compress", "false")
        builder = builder.config("spark.eventLog.rolling.enabled", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for table in FILES:
        spark.read.parquet(str(data / table)).createOrReplaceTempView(table)
    return spark


def resident_mb(spark: Any) -> float:
    """Return resident memory of Spark's process after a garbage collection, MB of 2^20 bytes."""
    spark.sparkContext._jvm.System.gc()
    time.sleep(1)
    pid = spark.sparkContext._jvm.ProcessHandle.current().pid()
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024


def record(out: Path, scale: float, queries: list[int], advisory_kb: int) -> None:
    """Run the queries, one application each, after a warm-up that is not recorded."""
    import duckdb
    import pyspark

    data, raw, logs = out / "data", out / "raw", out / "logs"
    for folder in (data, raw, logs):
        folder.mkdir(parents=True, exist_ok=True)
    texts = generate(data, scale)
    spark = session("warm-up", data, None, advisory_kb)
    spark.sql("SELECT count(*) FROM region").collect()
    baseline_mb = resident_mb(spark) / EXECUTOR_TASK_THREADS
    for number in (3, 9, 18):
        spark.sql(texts[number].rstrip().rstrip(";")).collect()
    spark.stop()
    for number in queries:
        name = f"q{number:02d}"
        before = set(raw.iterdir())
        spark = session(name, data, raw, advisory_kb)
        started = time.monotonic()
        spark.sql(texts[number].rstrip().rstrip(";")).collect()
        print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
        spark.stop()
        (log,) = set(raw.iterdir()) - before
        with (logs / f"{name}.json").open("w", encoding="utf-8") as target:
            target.writelines(stripped_lines(log))
    about = {
        "scale_factor": scale,
        "spark": pyspark.__version__,
        "duckdb": duckdb.__version__,
        "python": platform.python_version(),
        "java": re.sub(r"[^0-9.].*", "", _java_version()),
        "slots": EXECUTOR_TASK_THREADS,
        "baseline_mb": round(baseline_mb),
        "advisory_partition_kb": advisory_kb,
    }
    (out / "recording.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _java_version() -> str:
    import subprocess

    run = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return str(re.findall(r'version "([^"]+)"', run.stderr)[0])


def convert(recording: Path, target: Path) -> None:
    """Write one job file a query from the stripped logs, through Weft's own importer."""
    from weft.model.jobfile import job_to_dict
    from weft.workloads.spark_log import read

    about = json.loads((recording / "recording.json").read_text(encoding="utf-8"))
    target.mkdir(parents=True, exist_ok=True)
    for log in sorted((recording / "logs").glob("q*.json")):
        imported = read([log], group="execution", memory_base_mb=about["baseline_mb"])
        (job,) = [job for job in imported.jobs if "-sql" in job.name]
        key = f"tpch-sf{about['scale_factor']:g}-{log.stem}"
        table = {
            "name": log.stem,
            "history_key": key,
            "input_mb": job.input_mb,
            "stages": _renumbered(job_to_dict(job)["stages"]),
        }
        path = target / log.name
        path.write_text(_compact(table) + "\n", encoding="utf-8")
        width = ", ".join(str(stage.tasks) for stage in job.stages)
        print(f"{job.name}: {len(job.stages)} stages of {width} tasks")
        for warning in imported.warnings:
            print(f"  {warning}")


def _renumbered(stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return stages S1, S2, ... in Spark's order: its own numbers have gaps."""
    names = {stage["name"]: f"S{i}" for i, stage in enumerate(stages, 1)}
    for stage in stages:
        stage["name"] = names[stage["name"]]
        if "parents" in stage:
            stage["parents"] = [names[parent] for parent in stage["parents"]]
    return stages


def _compact(table: dict[str, Any]) -> str:
    """Return JSON with one stage a line: small, and still fit to be read."""
    stages = ",\n  ".join(json.dumps(stage) for stage in table["stages"])
    head = {key: value for key, value in table.items() if key != "stages"}
    return f'{json.dumps(head)[:-1]}, "stages": [\n  {stages}\n]}}'


def main(arguments: list[str]) -> int:
    """Record or convert; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    steps = parser.add_subparsers(dest="step", required=True)
    recorder = steps.add_parser("record")
    recorder.add_argument("--out", type=Path, required=True)
    recorder.add_argument("--sf", type=float, default=5.0)
    recorder.add_argument("--queries", type=int, nargs="+", default=list(QUERIES))
    recorder.add_argument("--advisory-kb", type=int, default=4096)
    converter = steps.add_parser("convert")
    converter.add_argument("--logs", type=Path, required=True, help="the folder given as --out")
    converter.add_argument("--out", type=Path, default=SAMPLES)
    options = parser.parse_args(arguments)
    if options.step == "record":
        record(options.out.resolve(), options.sf, options.queries, options.advisory_kb)
    else:
        convert(options.logs, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
