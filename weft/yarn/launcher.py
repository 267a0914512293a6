"""On the node, in the container: fetch what is to run, bring its files, run it in this process.

Weft's node starts this like any task's command, so limits, ends, logs and stopping are Weft's own.
It needs the standard library only. An application's files live beside its containers' folders and
outlive them: `filecache` (`localise`), `local` (LOCAL_DIRS: shuffle files).
"""

import base64
import json
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from weft.yarn.localise import Failure, localise, places

# The folder of an application's folder with what auxiliary services are told of it.
SERVICES_FOLDER = "services"

# The gateway may be restarting.
FETCH_TIMEOUT_S = 60.0
PASSED_ON = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "JAVA_HOME",
    "LD_LIBRARY_PATH",
    "TMPDIR",
    "WEFT_CONTAINER",
    "WEFT_NODE",
    "WEFT_WORK_DIR",
    "WEFT_WORK_ROOT",
)
# A mark in a command, and what YARN's node puts there for a Java that needs it.
ADD_OPENS = "<ADD_OPENS>"
OPENED = (
    "--add-opens=java.base/java.lang=ALL-UNNAMED --add-exports=java.base/sun.net.dns=ALL-UNNAMED "
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED"
)
# The exit code where the container could not be set up; the last line of stderr says why.
SETUP_FAILED = 1


def main() -> None:
    """Become the container's command."""
    os.umask(0o077)
    work = Path(os.environ["WEFT_WORK_DIR"])
    root = os.environ.get("WEFT_WORK_ROOT")
    try:
        data = fetch(os.environ["WEFT_HADOOP"], os.environ["WEFT_CONTAINER"])
        note(work, f"Setting up job resources: {len(data['resources'])}")
        home, bound = work.parent, int(data.get("cache_mb", 0)) << 20
        where = places(Path(root) if root and bound else None, home, data["user"])
        fetched, there = localise(data["resources"], work, where, bound)
        note(work, f"Setting up env variables: {fetched} files fetched, {there} were here")
        script = prepare(data, work, home)
        note(work, "Launching container")
    except (Failure, OSError, KeyError, ValueError) as error:
        print(f"the container cannot run: {error}", file=sys.stderr)
        sys.exit(SETUP_FAILED)
    os.execvp("bash", ["bash", str(script)])


def note(work: Path, text: str) -> None:
    """Say in the container's logs, where YARN's node says it, how far its start has come."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    with (work / "prelaunch.out").open("a", encoding="utf-8") as file:
        file.write(f"{now} {text}\n")


def fetch(gateway: str, container: str) -> dict[str, Any]:
    """Ask the gateway what this container is to run."""
    request = urllib.request.Request(
        f"{gateway}/launch/{container}",
        headers={
            "X-Weft-Ticket": os.environ.get("WEFT_HADOOP_TICKET", ""),
            "X-Weft-Node": os.environ.get("WEFT_NODE", ""),
        },
    )
    give_up = time.monotonic() + FETCH_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError as error:
            code = error.code if isinstance(error, urllib.error.HTTPError) else 0
            if code and code < 500:
                raise Failure(f"{gateway}: {error}") from None
            if time.monotonic() > give_up:
                raise Failure(f"{gateway} does not answer: {error}") from None
            time.sleep(0.5)


# -- environment and script ------------------------------------------------------------------------


def prepare(data: Mapping[str, Any], work: Path, home: Path) -> Path:
    """Write the tokens and the script; the script's variables are YARN's, then the context's."""
    local, temporary = home / "local", work / "tmp"
    local.mkdir(parents=True, exist_ok=True)
    temporary.mkdir(exist_ok=True)
    # YARN's containers run below LOCAL_DIRS, and some (Skein's) look for their files there
    place = local / os.environ["WEFT_CONTAINER"]
    if not place.is_symlink():
        place.symlink_to(work)
    tell_services(data, home)
    tokens = work / "container_tokens"
    tokens.write_bytes(base64.b64decode(data["tokens"]))
    tokens.chmod(0o600)
    user = data["user"] or "nobody"
    variables = {
        "CONTAINER_ID": os.environ["WEFT_CONTAINER"],
        "NM_HOST": data["host"],
        "NM_PORT": str(data["port"]),
        "NM_HTTP_PORT": str(data["http_port"]),
        "LOCAL_DIRS": str(local),
        "LOCAL_USER_DIRS": str(local),
        "LOG_DIRS": str(work),
        "USER": user,
        "LOGNAME": user,
        "HADOOP_USER_NAME": user,
        "HADOOP_TOKEN_FILE_LOCATION": str(tokens),
        "JAVA_HOME": java_home(),
        "TMPDIR": str(temporary),
        # Tez reads the port of the shuffle from here.
        **{f"NM_AUX_SERVICE_{k}": told for k, told in data.get("node_services", {}).items()},
        **data.get("variables", {}),
    }
    lines = ["#!/bin/bash", f"cd {quoted(str(work))} || exit 1"]
    for name in list(os.environ):
        if name not in PASSED_ON:
            lines.append(f"unset -v {name}" if re.fullmatch(r"[A-Za-z_]\w*", name) else ":")
    for name, value in variables.items():
        lines.append(f"export {name}={quoted(value)}")
    lines.append('export PWD="$(pwd)"')
    for name, value in in_order(data["environment"]):
        if not re.fullmatch(r"[A-Za-z_][\w.]*", name):
            raise Failure(f"{name!r} is no name of a variable")
        lines.append(f'export {name}="{expanded(value, work)}"')
    command = " ".join(expanded(word, work) for word in data["commands"])
    lines.append(f'exec /bin/bash -c "{command}"')
    script = work / "launch_container.sh"
    script.write_text("\n".join(lines) + "\n", "utf-8")
    script.chmod(0o700)
    return script


def tell_services(data: Mapping[str, Any], home: Path) -> None:
    """Leave what the master says to the node's auxiliary services where they look for it."""
    told = data.get("services", {})
    if not told:
        return
    folder = home / SERVICES_FOLDER
    folder.mkdir(exist_ok=True)
    for name, text in told.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise Failure(f"{name!r} is no name of a service")
        fresh = folder / f".{name}.{os.environ['WEFT_CONTAINER']}"
        fresh.write_text(json.dumps({"user": data["user"], "data": text}), "utf-8")
        fresh.replace(folder / name)


def in_order(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return variables so that what others refer to comes first."""
    left, out = dict(environment), []
    while left:
        ready = [
            name
            for name, value in left.items()
            if not any(other != name and refers(value, other) for other in left)
        ] or list(left)
        for name in ready:
            out.append((name, left.pop(name)))
    return out


def refers(value: str, name: str) -> bool:
    """Return whether a value uses a variable."""
    escaped = re.escape(name)
    return re.search(rf"\$\{{?{escaped}\b|{{{{{escaped}}}}}|%{escaped}%", value) is not None


def expanded(text: str, work: Path) -> str:
    """Replace YARN's own marks, for any platform, by the shell's."""
    text = text.replace("<LOG_DIR>", str(work)).replace("<CPS>", ":")
    if ADD_OPENS in text:
        text = text.replace(ADD_OPENS, OPENED if is_closed(java_home()) else "")
    return re.sub(r"\{\{([A-Za-z_]\w*)\}\}", r"$\1", text)


def quoted(text: str) -> str:
    """Quote a value that the shell must take as it stands."""
    return "'" + text.replace("'", "'\\''") + "'"


def is_closed(home: str) -> bool:
    """Return whether a Java is one that keeps its own classes to itself, as those from 17 on."""
    try:
        found = re.search(
            r'^JAVA_VERSION="(\d+)', (Path(home) / "release").read_text(), re.MULTILINE
        )
    except OSError:
        return False
    return found is not None and int(found[1]) >= 17


def java_home() -> str:
    """Return where the host's Java is; empty where there is none."""
    if told := os.environ.get("JAVA_HOME"):
        return told
    java = shutil.which("java")
    return str(Path(java).resolve().parents[1]) if java else ""


if __name__ == "__main__":
    main()
