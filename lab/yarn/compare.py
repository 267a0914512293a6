"""`make yarn-compare CASES=FOLDER`: every scenario of a folder through the real YARN and Weft.

Maven fetches the Resource Manager as published (pom.xml), `javac` compiles the driver, and both are
kept in build/yarn. The last line is `identical N of M decisions`: grants and new reservations, each
asked in the same state. Scenarios in which both run freely and decide the same need no leading.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.yarn.cases import Case, read_case
from lab.yarn.led import Led, Tally
from lab.yarn.weft_side import Answer, Loop
from weft.model.errors import WeftError

HERE = Path(__file__).parent
BUILD = Path("build/yarn")
# Some of YARN's orders are those of objects' hashes, which differ from run to run: here all are 1.
SAME_HASHES = ("-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2")
JVM = ("java", "-Xmx2g", "-XX:+UseSerialGC")


def jars(pom: str, into: Path) -> str:
    """Fetch what a pom of this folder names, once; return its classpath."""
    listed = (into / "jars").resolve()
    if not listed.exists():
        into.mkdir(parents=True, exist_ok=True)
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={listed}"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(HERE / pom), *goal], check=True)
    return listed.read_text(encoding="utf-8").strip()


def class_path() -> str:
    """Fetch and compile what the driver needs, once for each version; return its classpath."""
    sources = [HERE / "pom.xml", HERE / "Driver.java"]
    made_of = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    out = BUILD / f"driver-{made_of}"
    listed = out / "classpath"
    if not listed.exists():
        found = jars("pom.xml", out)
        compile_it = ["javac", "-nowarn", "-cp", found, "-d", str(out), str(HERE / "Driver.java")]
        subprocess.run(compile_it, check=True)
        listed.write_text(f"{out}:{found}", encoding="utf-8")
    return listed.read_text(encoding="utf-8")


def ask_yarn(files: list[Path], answers: Path) -> None:
    """Run scenarios through the real scheduler; answers have the scenarios' names."""
    answers.mkdir(parents=True, exist_ok=True)
    pairs = [word for path in files for word in (str(path), str(answers / path.name))]
    command = [*JVM, *SAME_HASHES, "-cp", class_path(), "Driver", *pairs]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, timeout=3600)


def same_freely(yarn: dict[str, Any], weft: Answer) -> int:
    """Return how many grants are the same in sequence, both having run freely."""
    same = 0
    for theirs, ours in zip(yarn["grants"], weft.grants, strict=False):
        if tuple(theirs) != ours:
            break
        same += 1
    return same


def in_rounds(rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return what was preempted; of one round in any order, as all of it happens at once."""
    return sorted(tuple(row) for row in rows)


def until_a_master_dies(case: Case, yarn: dict[str, Any]) -> tuple[Case, dict[str, Any]]:
    """Return a scenario and YARN's answer up to the round in which a master is preempted.

    What follows is of attempts, which the driver has none of.
    """
    masters = {app["id"] for app in case.data["applications"] if app.get("am")}
    dead = [
        number
        for number, what, _, app, priority in yarn["preemptions"]
        if what == "KILL_CONTAINER" and not priority and app in masters
    ]
    if not dead:
        return case, yarn
    end = min(dead)
    cut = {
        key: [row for row in rows if row[0] < end] for key, rows in yarn.items() if key != "places"
    }
    cut["places"] = yarn["places"][: len(cut["grants"])]
    return replace(case, data={**case.data, "rounds": end}), cut


def compare(path: Path, yarn: dict[str, Any]) -> tuple[Tally, str, bool]:
    """Compare one scenario; return the tally, a line about it, whether it runs freely the same."""
    case = read_case(path)
    case, yarn = until_a_master_dies(case, yarn)
    free = Loop(case).run()
    same, most = same_freely(yarn, free), max(len(yarn["grants"]), len(free.grants))
    kept = [tuple(row) for row in yarn["reserved_after"]] == free.reserved_after
    taken = in_rounds(yarn["preemptions"]) == in_rounds(free.preemptions)
    alike_freely = same == most and kept and taken
    if alike_freely:
        count = most + len(yarn["reservations"]) + len(yarn["preemptions"])
        tally = Tally(count, count)
    elif case.preset.matcher == "yarn":
        led = Led(case, yarn)
        led.run()
        tally = led.tally
    else:
        told = in_rounds(yarn["preemptions"]), in_rounds(free.preemptions)
        alike = (Counter(told[0]) & Counter(told[1])).total()
        count = most + max(len(rows) for rows in told)
        tally = Tally(count, same + alike, {"runs freely": count - same - alike})
    line = f"{path.stem:40s} {tally.identical:7d} of {tally.decisions:7d}  freely {same} of {most}"
    if tally.first:
        line += f"  first: {tally.first}"
    elif not alike_freely:
        line += "  not the same freely, the same when led"
    return tally, line, alike_freely


def _keep(files: list[Path], answers: Path, out: Path) -> None:
    """Write what YARN granted and reserved in each scenario, a scenario a line."""
    rows = []
    for path in files:
        yarn = json.loads((answers / path.name).read_text(encoding="utf-8"))
        if "refused" not in yarn:
            kept = {key: yarn[key] for key in ("grants", "reserved_after", "preemptions")}
            rows.append(json.dumps({"name": path.stem, **kept}, separators=(",", ":")))
    out.write_text("\n".join(rows) + "\n", encoding="utf-8")


def main() -> int:
    """Run the comparison; return 0 when it could be made."""
    parser = argparse.ArgumentParser(description="Compare Weft with the real YARN.")
    parser.add_argument("cases", type=Path, help="a folder of scenarios, or one file")
    parser.add_argument("--answers", type=Path, default=BUILD / "answers")
    parser.add_argument("--keep", type=Path, help="write YARN's answers, for tests without Java")
    parser.add_argument("--again", action="store_true", help="use the answers of the last time")
    chosen = parser.parse_args()
    folder = chosen.cases
    files = sorted(folder.glob("*.json")) if folder.is_dir() else [folder]
    if not chosen.again:
        ask_yarn(files, chosen.answers)
    if chosen.keep is not None:
        _keep(files, chosen.answers, chosen.keep)
    whole, classes, free = Tally(), dict[str, int](), 0
    began = time.monotonic()
    for path in files:
        yarn = json.loads((chosen.answers / path.name).read_text(encoding="utf-8"))
        if "refused" in yarn:
            print(f"{path.stem:40s} refused by YARN: {yarn['refused'][:120]}")
            continue
        try:
            tally, line, alike_freely = compare(path, yarn)
        except (WeftError, LookupError) as error:
            print(f"{path.stem:40s} not compared: {error}")
            whole.decisions += len(yarn["grants"])
            continue
        print(line, flush=True)
        free += alike_freely
        whole.decisions += tally.decisions
        whole.identical += tally.identical
        for kind, count in tally.classes.items():
            classes[kind] = classes.get(kind, 0) + count
    for kind, count in sorted(classes.items(), key=lambda one: -one[1]):
        print(f"  {count:7d} {kind}")
    took_s = time.monotonic() - began
    print(f"{free} of {len(files)} scenarios the same to the end, both free ({took_s:.0f} s)")
    print(f"identical {whole.identical} of {whole.decisions} decisions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
