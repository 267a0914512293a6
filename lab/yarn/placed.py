"""`python -m lab.yarn.placed`: which queue each application goes to, by YARN and by Weft.

Random rules of placement (mapping rules as text and as JSON, the Fair Scheduler's policies), users
with groups, queues that submissions make. Each application is a decision: its queue, or a refusal.
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.yarn.cases import case_of
from lab.yarn.compare import BUILD, ask_yarn
from lab.yarn.weft_side import Loop
from weft.model.errors import InputError
from weft.workloads.yarn_properties import CAPACITY

USERS = {"ann": ["dev", "ops"], "bob": ["ops"], "eve": ["qa", "dev"], "a.b": ["dev"], "zoe": []}
NAMES = ("etl", "app", "web")
QUEUES = ("default", "users.ann", "root.dev", "root.dev.web", "web", "root.users.new", "nowhere")
POLICIES = (
    "specified",
    "user",
    "primaryGroup",
    "secondaryGroup",
    "primaryGroupUser",
    "secondaryGroupUser",
    "applicationName",
    "defaultQueue",
)
TARGETS = (
    "web",
    "root.dev.web",
    "root.users.%user",
    "users.%user",
    "%primary_group",
    "root.%primary_group.%user",
    "root.users.%primary_group.%user",
    "%user",
    "root.ops",
    "root.users.%application",
    "root.%secondary_group",
)


def capacity_case(rng: random.Random) -> dict[str, Any]:
    """Return a scenario of the Capacity Scheduler."""
    made: dict[str, str] = {f"{CAPACITY}root.queues": "default,users,dev,ops,qa"}
    for name in ("default", "users", "dev", "ops", "qa", "dev.web", "dev.ops2"):
        made[f"{CAPACITY}root.{name}.capacity"] = f"{rng.randint(1, 5)}w"
    made[f"{CAPACITY}root.dev.queues"] = "web,ops2"
    for name in ("users", "dev", ""):
        if rng.random() < 0.6:
            start = f"{CAPACITY}root.{name}." if name else f"{CAPACITY}root."
            made[f"{start}auto-queue-creation-v2.enabled"] = "true"
            if rng.random() < 0.3:
                made[f"{start}auto-queue-creation-v2.maximum-queue-depth"] = str(rng.randint(1, 3))
            if rng.random() < 0.2:
                made[f"{start}auto-queue-creation-v2.max-queues"] = str(rng.randint(1, 4))
    made[f"{CAPACITY}queue-mappings-override.enable"] = str(rng.random() < 0.5).lower()
    if rng.random() < 0.5:
        made[f"{CAPACITY}mapping-rule-format"] = "json"
        rules = [_json_rule(rng) for _ in range(rng.randint(1, 4))]
        made[f"{CAPACITY}mapping-rule-json"] = json.dumps({"rules": rules})
    else:
        mappings = [_mapping(rng) for _ in range(rng.randint(1, 4))]
        made[f"{CAPACITY}queue-mappings"] = ",".join(mappings)
        if rng.random() < 0.4:
            made["yarn.scheduler.queue-placement-rules.app-name"] = f"etl:{rng.choice(TARGETS)}"
    return _scenario(made, rng)


def _json_rule(rng: random.Random) -> dict[str, Any]:
    kind = rng.choice(("user", "user", "group", "application"))
    names = {"user": ["*", "*", *USERS], "group": ["dev", "ops", "qa"], "application": NAMES}
    made: dict[str, Any] = {"type": kind, "matches": rng.choice(names[kind])}
    draw = rng.random()
    if draw < 0.1:
        made["policy"] = "reject"
    elif draw < 0.2:
        made |= {"policy": "setDefaultQueue", "value": rng.choice(("root.ops", "root.dev"))}
    elif draw < 0.4:
        made |= {"policy": "custom", "customPlacement": rng.choice(TARGETS)}
    else:
        made["policy"] = rng.choice(POLICIES)
        if rng.random() < 0.5 and made["policy"] not in ("specified", "defaultQueue"):
            made["parentQueue"] = rng.choice(("root", "root.users", "root.dev"))
    if rng.random() < 0.3:
        made["create"] = rng.random() < 0.5
    if rng.random() < 0.6:
        made["fallbackResult"] = rng.choice(("skip", "placeDefault", "reject"))
    return made


def _mapping(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return f"g:{rng.choice(('dev', 'ops', 'qa'))}:{rng.choice(TARGETS)}"
    return f"u:{rng.choice(('%user', 'ann', 'bob', 'eve'))}:{rng.choice(TARGETS)}"


def fair_case(rng: random.Random) -> dict[str, Any]:
    """Return a scenario of the Fair Scheduler."""
    made = {"yarn.resourcemanager.scheduler.class": "x.FairScheduler"}
    policy = ""
    if rng.random() < 0.75:
        rules = [_fair_rule(rng) for _ in range(rng.randint(0, 3))]
        last = rng.choice(
            ('<rule name="reject"/>', f'<rule name="default" queue="{_queue(rng)}"/>')
        )
        policy = f"<queuePlacementPolicy>{''.join(rules)}{last}</queuePlacementPolicy>"
    else:
        made["yarn.scheduler.fair.allow-undeclared-pools"] = str(rng.random() < 0.5).lower()
        made["yarn.scheduler.fair.user-as-default-queue"] = str(rng.random() < 0.5).lower()
    tree = '<queue name="{}"><queue name="web"/><queue name="ann"/></queue><queue name="ops"/>'
    text = tree.format(rng.choice(("dev", "users")))
    if rng.random() < 0.4:
        text += '<queue name="users2" type="parent"/>'
    if rng.random() < 0.5:
        text += '<queue name="default"/>'
    return _scenario(made, rng) | {"allocations": f"<allocations>{text}{policy}</allocations>"}


def _queue(rng: random.Random) -> str:
    return rng.choice(("default", "root.ops", "dev.web", "users", "root.users2.all"))


def _fair_rule(rng: random.Random) -> str:
    name = rng.choice(
        ("specified", "user", "primaryGroup", "secondaryGroupExistingQueue", "nestedUserQueue")
    )
    inside = ""
    if name == "nestedUserQueue" or (rng.random() < 0.2 and name != "specified"):
        others = [one for one in ("primaryGroup", "secondaryGroupExistingQueue") if one != name]
        upper = rng.choice((*others, "specified", "default"))
        said = f' queue="{_queue(rng)}"' if upper == "default" else ""
        inside = f'<rule name="{upper}"{said} create="{str(rng.random() < 0.6).lower()}"/>'
    # Only one that is sure to say no queue leaves the next ones to be reached.
    return f'<rule name="{name}" create="false">{inside}</rule>'


def _scenario(made: dict[str, str], rng: random.Random) -> dict[str, Any]:
    made["hadoop.user.group.static.mapping.overrides"] = ";".join(
        f"{user}={','.join(groups)}" for user, groups in USERS.items()
    )
    apps = [
        {
            "id": number,
            "at": 0,
            "user": rng.choice(list(USERS)),
            "name": rng.choice(NAMES),
            "queue": rng.choice(QUEUES) if rng.random() < 0.5 else "default",
            "asks": [],
        }
        for number in range(1, 13)
    ]
    node = {"name": "n1", "mem": 65536, "vcores": 64, "rack": "/r1"}
    return {
        "places": True,
        "rounds": 1,
        "configuration": made,
        "nodes": [node],
        "applications": apps,
    }


def scenario(seed: int) -> dict[str, Any]:
    """Return the scenario of a seed: one in three is of the Fair Scheduler."""
    rng = random.Random(seed)
    return (fair_case if seed % 3 == 2 else capacity_case)(rng)


def weft_queues(name: str, data: dict[str, Any]) -> list[list[Any]] | str:
    """Return the queue of each application by Weft; a text: why the rules are refused."""
    try:
        return [list(row) for row in Loop(case_of(name, data)).run().queues]
    except InputError as error:
        return str(error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare so many random scenarios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--out", type=Path, default=BUILD / "placed")
    parser.add_argument("--keep", type=Path, help="where YARN's answers are kept, by seed")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    files = []
    for seed in range(given.count):
        path = given.out / f"{seed}.json"
        path.write_text(json.dumps(scenario(seed), indent=1), encoding="utf-8")
        files.append(path)
    ask_yarn(files, given.out / "answers")
    same = total = refused = 0
    kept: dict[str, list[str]] = {}
    for seed, path in enumerate(files):
        answer = json.loads((given.out / "answers" / path.name).read_text(encoding="utf-8"))
        ours = weft_queues(path.stem, scenario(seed))
        if "refused" in answer:
            refused += 1
            continue
        theirs = answer["queues"]
        total += len(theirs)
        kept[path.stem] = [queue for _, queue in theirs]
        found = 0 if isinstance(ours, str) else sum(map(list.__eq__, theirs, ours))
        same += found
        if found < len(theirs):
            print(f"{path}: YARN {theirs}\n  Weft {ours}")
    if given.keep:
        given.keep.write_text(json.dumps(kept, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{refused} scenarios are none to YARN")
    print(f"identical {same} of {total} placements")
    return 0 if same == total else 1


if __name__ == "__main__":
    sys.exit(main())
