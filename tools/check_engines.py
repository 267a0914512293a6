"""Unmodified MapReduce and Tez on a fresh cluster: right results, also with losses under way.

python -m tools.check_engines [CASE ...]

Maven fetches both as published (`tools/engines`) into build/; where it or Java cannot be had, the
check says so and passes. Every result is compared with what Python makes of the same files.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tools.spark_kit import LIGHT, ROOT, Failure
from weft.client.local import LocalCluster, LocalSettings, write_site

ENGINES, BUILD = ROOT / "tools" / "engines", ROOT / "build" / "engines"
NODES = "3x4vcores,3072memory_mb"
# A node is lost after so long, s; a container takes so much, MB.
EXPIRY_S, CONTAINER_MB = 4, 512
# This is a limit for a condition, never a measure.
CASE_S = 400.0
JAVA = f"-Xmx300m --add-opens=java.base/java.lang=ALL-UNNAMED {LIGHT}"
EXAMPLES = "org.apache.hadoop.examples.ExampleDriver"
TEZ_EXAMPLES = "org.apache.tez.examples.ExampleDriver"
PAIRS = (
    "-inFormat",
    "org.apache.hadoop.mapreduce.lib.input.KeyValueTextInputFormat",
    "-outFormat",
    "org.apache.hadoop.mapreduce.lib.output.TextOutputFormat",
    "-outKey",
    "org.apache.hadoop.io.Text",
    "-outValue",
    "org.apache.hadoop.mapreduce.lib.join.TupleWritable",
)
KEYS, NUMBERS = 97, 20_000
# Maps that take long enough for something to be lost meanwhile; no reducer begins before the last.
LONG_MAPS = ("-Dmapreduce.job.reduce.slowstart.completedmaps=1.0",)


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"engines: {text}", flush=True)


def install() -> dict[str, Path]:
    """Fetch both engines into build/; return their folders, none where they cannot be had."""
    found = {}
    for name in ("mapreduce", "tez"):
        folder = BUILD / name
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
            command = ["mvn", "-q", "-B", "-f", str(ENGINES / f"{name}.xml"), *goal]
            say(f"Maven fetches {name} into {folder.relative_to(ROOT)}")
            done = subprocess.run(
                [*command, f"-DoutputDirectory={folder}"],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                words = [line for line in done.stdout.splitlines() if "ERROR" in line]
                say(f"not checked: {(words or ['Maven failed'])[0]}")
                return {}
            (folder / "whole").touch()
        found[name] = folder
    program = BUILD / "five"
    program.mkdir(exist_ok=True)
    source, jars = str(ENGINES / "Five.java"), f"{found['tez']}/*"
    subprocess.run(["javac", "-d", str(program), "-cp", jars, source], check=True)
    return found | {"five": program}


class Engines:
    """Both engines' clients against one cluster."""

    def __init__(self, cluster: LocalCluster, jars: dict[str, Path], work: Path) -> None:
        self.cluster, self.jars, self.work = cluster, jars, work
        self.files = cluster.folder / "hadoop-files"
        self.conf = self._configured()
        self._write()

    def _configured(self) -> Path:
        """Write a configuration folder: the cluster's own, and how large containers are."""
        assert self.cluster.conf is not None
        conf = self.work / "conf"
        shutil.copytree(self.cluster.conf, conf, dirs_exist_ok=True)
        mapred = {
            "mapreduce.framework.name": "yarn",
            # Without a history server a job's end is what the Resource Manager says.
            "mapreduce.jobhistory.address": "",
            "mapreduce.application.classpath": f"{self.jars['mapreduce']}/*",
            "yarn.app.mapreduce.am.resource.mb": CONTAINER_MB,
            "yarn.app.mapreduce.am.command-opts": JAVA,
            "yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms": 300,
            "mapreduce.map.memory.mb": CONTAINER_MB,
            "mapreduce.reduce.memory.mb": CONTAINER_MB,
            "mapred.child.java.opts": JAVA,
            "mapreduce.task.io.sort.mb": 32,
        }
        tez = {
            "tez.ignore.lib.uris": "true",
            "tez.cluster.additional.classpath.prefix": f"{self.jars['five']}:{self.jars['tez']}/*",
            "tez.am.resource.memory.mb": CONTAINER_MB,
            "tez.task.resource.memory.mb": CONTAINER_MB,
            "tez.am.launch.cmd-opts": JAVA,
            "tez.task.launch.cmd-opts": JAVA,
            "tez.runtime.io.sort.mb": 32,
            "tez.runtime.unordered.output.buffer.size-mb": 16,
            # All nodes go by the name of this host, and do not see each other's files.
            "tez.runtime.optimize.local.fetch": "false",
        }
        write_site(conf / "mapred-site.xml", {k: str(v) for k, v in mapred.items()})
        write_site(conf / "tez-site.xml", {k: str(v) for k, v in tez.items()})
        return conf

    def _write(self) -> None:
        """Write what jobs read: words in a few files, and two tables with keys in common."""
        draw = random.Random(46)
        vocabulary = [f"w{draw.randrange(3000)}" for _ in range(2000)]
        words = self.files / "words"
        words.mkdir(parents=True)
        for number in range(6):
            lines = (" ".join(draw.choices(vocabulary, k=8)) for _ in range(5_000))
            (words / f"part{number}").write_text("\n".join(lines) + "\n")
        for name, step in (("left", 2), ("right", 3)):
            rows = sorted(f"k{key:05}\t{name}{key}" for key in range(0, 6_000, step))
            (self.files / name).mkdir()
            (self.files / name / "part").write_text("\n".join(rows) + "\n")
            keys = "\n".join(row.partition("\t")[0] for row in rows)
            (self.files / f"{name}-keys").write_text(keys + "\n")

    # -- running ---------------------------------------------------------------------------------

    def run(self, engine: str, case: str, lose: str, *command: str) -> None:
        """Run a client to its end, which must be a good one; `lose` is lost under way."""
        jars = [str(self.conf), str(self.jars["five"]), f"{self.jars[engine]}/*"]
        log = self.work / f"{case}.log"
        before = self._applications()
        with log.open("wb") as output:
            client = subprocess.Popen(
                ["java", *LIGHT.split(), "-cp", ":".join(jars), *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.work,
            )
        give_up = time.monotonic() + CASE_S
        try:
            if lose:
                self._lose(lose, before, client, log, give_up)
            code = client.wait(max(1.0, give_up - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            client.kill()
            client.wait()
        if code:
            raise Failure(f"exit code {code}\n{log.read_text(errors='replace')[-3000:]}")

    def _applications(self) -> set[str]:
        return {path.name for path in self.cluster.folder.glob("work/n*/application_*")}

    def _lose(
        self,
        what: str,
        before: set[str],
        client: "subprocess.Popen[bytes]",
        log: Path,
        end_s: float,
    ) -> None:
        """Wait for a task's output on another node than the master's, then kill what is told.

        That node, a task or the master; `before` are the applications of before.
        """
        work = self.cluster.folder / "work"
        while True:
            app = max(self._applications() - before, default="none")
            master = {path.parents[1].name for path in work.glob(f"n*/{app}/*_01_000001")}
            there = {
                path.parents[4].name for path in work.glob(f"n*/{app}/local/output/*/file.out")
            }
            every = self._containers(app)
            running = [one for one in every if not one[1].endswith("_000001")]
            if there - master and running:
                break
            if client.poll() is not None or time.monotonic() > end_s:
                raise Failure(f"nothing to lose\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)
        if what != "node":
            others = [one for one in every if one not in running]
            pid, name, _ = (others if what == "master" else running)[0]
            say(f"  kills {name}")
            _kill(pid)
            return
        node = min(there - master)
        lost = [pid for pid, _, place in running if place == node]
        say(f"  loses {node} with {len(lost)} tasks that run")
        process = self.cluster.processes[f"nm{int(node[1:]) - 1}"]
        process.kill()
        process.wait()
        for pid in lost:
            _kill(pid)
        shutil.rmtree(work / node / app)

    def _containers(self, app: str) -> list[tuple[int, str, str]]:
        """Return process, container and node of what runs of an application."""
        found = []
        prefix = app.replace("application_", "container_") + "_"
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                pairs = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                told = dict(pair.partition("=")[::2] for pair in pairs)
                name = told.get("CONTAINER_ID", "")
                java = (entry / "comm").read_text().strip() == "java"
                if java and name.startswith(prefix):
                    found.append((int(entry.name), name, Path(told["LOCAL_DIRS"]).parents[1].name))
        return found

    def mend(self) -> None:
        """Have lost nodes back."""
        while self.cluster.mend():
            pass

    # -- cases -----------------------------------------------------------------------------------

    def sleep(self, case: str, lose: str) -> None:
        """Run SleepJob: four maps and two reducers."""
        times = ["-m", "4", "-r", "2", "-mt", "1000", "-rt", "1000"]
        self.run("mapreduce", case, lose, "org.apache.hadoop.mapreduce.SleepJob", *times)

    def words(self, case: str, lose: str) -> None:
        """Run WordCount with three reducers."""
        options = ["-Dmapreduce.job.reduces=3", *(LONG_MAPS if lose else ())]
        self.run("mapreduce", case, lose, EXAMPLES, "wordcount", *options, "/words", f"/{case}")
        self._expect(case, dict(self._counted()))

    def join(self, case: str, lose: str) -> None:
        """Join two sorted tables."""
        tables = ["-joinOp", "inner", "/left", "/right", f"/{case}"]
        self.run("mapreduce", case, lose, EXAMPLES, "join", "-r", "2", *PAIRS, *tables)
        wanted = {f"k{key:05}": f"[left{key},right{key}]" for key in range(0, 6_000, 6)}
        self._expect(case, wanted)

    def tez_words(self, case: str, lose: str) -> None:
        """Run OrderedWordCount: three vertices, the words by how often they are there."""
        driver = [TEZ_EXAMPLES, "orderedwordcount"]
        self.run("tez", case, lose, *driver, "/words", f"/{case}", "3")
        rows = self._expect(case, dict(self._counted()))
        if rows != sorted(rows, key=lambda row: int(row[1])):
            raise Failure("the words are not in order")

    def tez_join(self, case: str, lose: str) -> None:
        """Run HashJoin or SortMergeJoin: lines that are in both files."""
        how = case.partition("-")[2]
        paths = ["/left-keys", "/right-keys", "3", f"/{case}"]
        self.run("tez", case, lose, TEZ_EXAMPLES, how, *paths)
        self._expect(case, {f"k{key:05}": "" for key in range(0, 6_000, 6)})

    def five(self, case: str, lose: str) -> None:
        """Run a DAG of five vertices with thirteen tasks (`tools/engines/Five.java`)."""
        seconds = "6" if lose else "0"
        self.run("tez", case, lose, "Five", str(NUMBERS), seconds, f"/{case}/part")
        sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for number in range(NUMBERS):
            sums[number % KEYS][0] += number + number * number
            sums[number % KEYS][1] += 1
        self._expect(case, {str(key): f"{total} {count}" for key, (total, count) in sums.items()})

    def _counted(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for path in (self.files / "words").iterdir():
            counts.update(path.read_text().split())
        return counts

    def _expect(self, case: str, wanted: Mapping[str, object]) -> list[tuple[str, str]]:
        """Check the rows of an output: as many as wanted, each with its value; return them."""
        rows = []
        for path in sorted((self.files / case).glob("part*")):
            for line in path.read_text().splitlines():
                key, _, value = line.replace("\t", " ").partition(" ")
                rows.append((key, value))
        found = dict(rows)
        if len(rows) != len(found) or found != {key: str(value) for key, value in wanted.items()}:
            raise Failure(f"{len(rows)} rows, {len(wanted)} wanted, the first {rows[:3]}")
        return rows


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


CASES: dict[str, tuple[Callable[[Engines, str, str], None], str]] = {
    "sleep": (Engines.sleep, ""),
    "wordcount": (Engines.words, ""),
    "join": (Engines.join, ""),
    "wordcount-container": (Engines.words, "container"),
    "wordcount-node": (Engines.words, "node"),
    "wordcount-master": (Engines.words, "master"),
    "tez-orderedwordcount": (Engines.tez_words, ""),
    "tez-hashjoin": (Engines.tez_join, ""),
    "tez-sortmergejoin": (Engines.tez_join, ""),
    "tez-five": (Engines.five, ""),
    "tez-five-container": (Engines.five, "container"),
    "tez-five-node": (Engines.five, "node"),
    "tez-five-master": (Engines.five, "master"),
}


def main() -> int:
    """Run what was asked for; 0: all passed, or nothing could be checked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", default="", help="folder of the clients' logs")
    parser.add_argument("cases", nargs="*", help=f"default: all of {' '.join(CASES)}")
    chosen = parser.parse_args()
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        say(f"not checked: there is no {missing[0]}")
        return 0
    jars = install()
    if not jars:
        return 0
    settings = LocalSettings(
        cluster=NODES,
        mode="process",
        hadoop=True,
        web=True,
        state=True,
        flags={"rm": (f"node_expiry_s={EXPIRY_S}",)},
    )
    good = True
    with tempfile.TemporaryDirectory(prefix="weft-engines-") as folder:
        work = Path(chosen.work or Path(folder) / "work").resolve()
        work.mkdir(parents=True, exist_ok=True)
        with LocalCluster(settings, Path(folder) / "cluster") as cluster:
            engines = Engines(cluster, jars, work)
            for case in chosen.cases or CASES:
                act, lose = CASES[case]
                began = time.monotonic()
                try:
                    act(engines, case, lose)
                except (Failure, OSError) as error:
                    good = False
                    say(f"FAIL {case}: {error}")
                else:
                    say(f"ok   {case}, {time.monotonic() - began:.0f} s")
                engines.mend()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
