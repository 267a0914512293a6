"""`python -m lab.yarn.commands`: what the `yarn` command says of YARN's own cluster, and of Weft.

Hadoop's own command line (3.5) runs the same lines against a MiniYARNCluster and against Weft's
gateway; both have two nodes, the same queues, and an application that failed, one that runs and one
that was killed. Exit codes and words are compared, with ids, hosts, times and amounts left out.
"""

import argparse
import difflib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lab.yarn.compare import BUILD, HERE, class_path
from weft.client.local import LocalCluster, LocalSettings

LINES = (
    "application -list",
    "application -list -appStates ALL",
    "application -list -appStates FAILED,KILLED",
    "application -list -appStates NEVER",
    "application -list -appTypes NONE",
    "application -list -appTags none",
    "application -status {failed}",
    "application -status {runs}",
    "application -status {killed}",
    "application -status application_1_9999",
    "application -status nonsense",
    "application -kill {failed}",
    "application -kill {killed}",
    "application -kill application_1_9999",
    "application -kill nonsense",
    "application -updatePriority 5 -appId {runs}",
    "application -updatePriority x -appId {runs}",
    "application -updatePriority 5 -appId {failed}",
    "application -updatePriority 5 -appId application_1_9999",
    "application -movetoqueue {runs} -queue nowhere",
    "application -movetoqueue {failed} -queue b",
    "application -changeQueue b -appId {runs}",
    "application -updateLifetime 100 -appId {runs}",
    "application -updateLifetime 100 -appId {failed}",
    "application -nonsense",
    "applicationattempt -list {runs}",
    "applicationattempt -list {failed}",
    "applicationattempt -list application_1_9999",
    "applicationattempt -status {attempt}",
    "applicationattempt -status appattempt_1_9999_000001",
    "applicationattempt -fail appattempt_1_9999_000001",
    "container -list {attempt}",
    "container -list appattempt_1_9999_000001",
    "container -status {container}",
    "container -status container_1_9999_01_000001",
    "container -signal {container} NEVER",
    "container -signal container_1_9999_01_000001 GRACEFUL_SHUTDOWN",
    "node -list",
    "node -list -all",
    "node -list -states LOST",
    "node -list -states NEVER",
    "node -list -showDetails",
    "node -status {node}",
    "node -status nowhere:1",
    "node -status nonsense",
    "queue -status default",
    "queue -status b",
    "queue -status nowhere",
    "queue -list all",
    "queue -list nowhere",
    "cluster --list-node-labels",
    "cluster --list-node-attributes",
    "rmadmin -refreshNodes",
    "rmadmin -refreshSuperUserGroupsConfiguration",
    "rmadmin -refreshUserToGroupsMappings",
    "rmadmin -refreshAdminAcls",
    "rmadmin -refreshServiceAcl",
    "rmadmin -refreshNodesResources",
    "rmadmin -getGroups nobody",
    "rmadmin -updateNodeResource nowhere:1 1024 1",
    "rmadmin -updateNodeResource {node} x 1",
    "rmadmin -addToClusterNodeLabels gpu",
    "rmadmin -getServiceState rm1",
    "rmadmin -nonsense",
    "logs -applicationId {failed}",
    "logs -applicationId application_1_9999",
    "logs -applicationId nonsense",
    "application -kill {runs}",
)
NODES = {"count": 2, "capacity": {"vcores": 8, "memory_mb": 4096}}
QUEUES = {"root": {"default": {"capacity": 0.6}, "b": {"capacity": 0.4}}}
_LEFT_OUT = (
    (r"https?://\S+", "URL"),
    (r"\d+ MB-seconds, \d+ vcore-seconds", "AMOUNTS"),
    (r"(appattempt|container)_1\d{12}_", r"\1_TIME_"),
    (r"Rack : /\S+", "Rack : RACK"),
    (r"\w{3} \d\d/\w{3}/\d\d \S+", "DATE"),
    (r"\w{3} \w{3} +\d+ [\d:]+ \S+ \d{4}", "DATE"),
    (r"\d{2}/\w{3}/\d{4} [\d:]+", "DATE"),
    (r"\d{4}-\d\d-\d\d[ T][\d:,]+\S*", "DATE"),
    (r"\b[\w.-]+:\d{2,5}\b", "HOST:PORT"),
    (r"\b1\d{12}\b", "TIME"),
    (r"\b\d+(\.\d+)?(ms| ms|MB| MB)\b", "N MB"),
)


def plain(text: str, names: dict[str, str]) -> list[str]:
    """Return a text's lines without what differs between any two clusters."""
    # The longest first: an application's id is part of its attempts'.
    for name, value in sorted(names.items(), key=lambda one: -len(one[1])):
        text = text.replace(value, f"{{{name}}}")
        if name == "node":
            text = text.replace(value.partition(":")[0], "HOST")
    for pattern, word in _LEFT_OUT:
        text = re.sub(pattern, word, text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith(("at ", "SLF4J", "WARNING"))]


def compared(theirs: dict[str, Any], ours: dict[str, Any]) -> int:
    """Print each line's differences; return how many lines have none."""
    same = 0
    for one, other in zip(theirs["answers"], ours["answers"], strict=True):
        before, after = [
            plain(side["out"] + side["errors"], whole["names"])
            for side, whole in ((one, theirs), (other, ours))
        ]
        differ = [row for row in difflib.ndiff(before, after) if row[0] in "-+"]
        codes = one["code"], other["code"]
        if not differ and codes[0] == codes[1]:
            same += 1
            continue
        print(f"$ yarn {one['line']}    exits {codes[0]}, {codes[1]}")
        print("".join(f"    {row}\n" for row in differ), end="")
    return same


def main() -> int:
    """Run the lines against both; return 0 when it could be done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true", help="use YARN's answers of the last time")
    again = parser.parse_args().again
    jars, out = class_path(), (BUILD / "commands").resolve()
    out.mkdir(parents=True, exist_ok=True)
    made = ["javac", "-nowarn", "-cp", jars, "-d", str(out), str(HERE / "Commands.java")]
    subprocess.run(made, check=True)
    lines = out / "lines.json"
    lines.write_text(json.dumps(LINES), encoding="utf-8")

    def asked(where: str, conf: str = "") -> dict[str, Any]:
        answers = out / f"{where}.json"
        if not (again and where == "mini"):
            path = f"{conf}:{out}:{':'.join(str(Path(jar).resolve()) for jar in jars.split(':'))}"
            run = ["java", "-cp", path, "Commands", str(lines), str(answers), where]
            with (out / f"{where}.log").open("wb") as log:
                subprocess.run(run, check=True, cwd=out, stderr=log, stdout=log, timeout=900)
        found: dict[str, Any] = json.loads(answers.read_text(encoding="utf-8"))
        return found

    theirs = asked("mini")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.json"
        file.write_text(json.dumps({"nodes": [NODES], "queues": QUEUES}), encoding="utf-8")
        settings = LocalSettings(cluster=str(file), mode="process", hadoop=True, web=True)
        with LocalCluster(settings) as cluster:
            ours = asked("weft", str(cluster.conf))
    same = compared(theirs, ours)
    print(f"the same {same} of {len(LINES)} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
