"""On the node, in the container: fetch what is to run, bring its files, run it in this process.

Weft's node starts this like any task's command, so limits, ends, logs and stopping are Weft's own.
It needs the standard library only. An application's files live beside its containers' folders and
outlive them: `filecache` (localised once), `local` (LOCAL_DIRS: shuffle files).
"""

import base64
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FETCH_S = 60.0  # the gateway may be about to come back
CHUNK = 1 << 20
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "JAVA_HOME", "LD_LIBRARY_PATH", "TMPDIR",
             "WEFT_CONTAINER", "WEFT_NODE", "WEFT_WORK_DIR", "WEFT_WORK_ROOT")  # fmt: skip
FAILED = 1  # exit code where the container could not be set up: the last line of stderr says why


class Failure(Exception):
    """The container cannot run."""


def main() -> None:
    """Become the container's command."""
    os.umask(0o077)
    work = Path(os.environ["WEFT_WORK_DIR"])
    try:
        data = fetch(os.environ["WEFT_HADOOP"], os.environ["WEFT_CONTAINER"])
        home = work.parent
        localise(data["resources"], work, home / "filecache")
        script = prepare(data, work, home)
    except (Failure, OSError, KeyError, ValueError) as error:
        print(f"the container cannot run: {error}", file=sys.stderr)
        sys.exit(FAILED)
    os.execvp("bash", ["bash", str(script)])


def fetch(gateway: str, container: str) -> dict[str, Any]:
    """Ask the gateway what this container is to run."""
    request = urllib.request.Request(
        f"{gateway}/launch/{container}",
        headers={
            "X-Weft-Ticket": os.environ.get("WEFT_HADOOP_TICKET", ""),
            "X-Weft-Node": os.environ.get("WEFT_NODE", ""),
        },
    )
    give_up = time.monotonic() + FETCH_S
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


# -- files -----------------------------------------------------------------------------------------


def localise(resources: list[Mapping[str, Any]], work: Path, cache: Path) -> None:
    """Bring every resource into the cache, once, and link it into the work folder."""
    cache.mkdir(parents=True, exist_ok=True)
    for one in resources:
        link = work / one["name"]
        if work.resolve() not in link.resolve().parents:
            raise Failure(f"resource {one['name']!r} would lie outside the container's folder")
        link.parent.mkdir(parents=True, exist_ok=True)
        kept = bring(one, cache)
        if link.is_symlink() or link.exists():
            continue
        link.symlink_to(kept)


def bring(one: Mapping[str, Any], cache: Path) -> Path:
    """Return the place of a resource in the cache; whoever comes first fetches it."""
    text = f"{one['url']}|{one['size']}|{one['timestamp_ms']}|{one['kind']}"
    folder = cache / hashlib.sha256(text.encode()).hexdigest()[:20]
    name = Path(urllib.parse.urlsplit(one["url"]).path).name or "resource"
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder / name
        fresh = cache / f"{folder.name}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        if one["kind"] == "archive":
            packed = fresh / f"{name}.packed"
            download(one, packed)
            unpack(packed, fresh / name)
            packed.unlink()
        else:
            download(one, fresh / name)
            (fresh / name).chmod(0o500)
        fresh.rename(folder)
    return folder / name


def download(one: Mapping[str, Any], to: Path) -> None:
    """Copy a resource, and check that it is what was promised."""
    parts = urllib.parse.urlsplit(one["url"])
    if parts.scheme in ("", "file"):
        source = Path(urllib.parse.unquote(parts.path))
        try:
            found = source.stat()
        except OSError as error:
            raise Failure(f"{one['url']}: {error.strerror}") from None
        if not source.is_file():
            raise Failure(f"{one['url']}: not a file")
        check(one, found.st_size, int(found.st_mtime * 1000))
        shutil.copyfile(source, to)
    elif parts.scheme in ("webhdfs", "http", "https"):
        fetch_file(one, parts, to)
    else:
        raise Failure(f"{one['url']}: no reader for {parts.scheme}://")
    if to.stat().st_size != one["size"] >= 0:
        raise Failure(f"{one['url']}: {to.stat().st_size} bytes, not {one['size']}")


def fetch_file(one: Mapping[str, Any], parts: urllib.parse.SplitResult, to: Path) -> None:
    """Fetch over WebHDFS or HTTP."""
    address = one["url"]
    if parts.scheme == "webhdfs":
        base = f"http://{parts.netloc}/webhdfs/v1{parts.path}"
        with urllib.request.urlopen(f"{base}?op=GETFILESTATUS", timeout=60) as answer:
            status = json.load(answer)["FileStatus"]
        check(one, status["length"], status["modificationTime"])
        address = f"{base}?op=OPEN"
    with urllib.request.urlopen(address, timeout=60) as answer, to.open("wb") as file:
        shutil.copyfileobj(answer, file, CHUNK)


def check(one: Mapping[str, Any], size: int, timestamp_ms: int) -> None:
    """Refuse a file that changed since it was named, as YARN does."""
    if one["timestamp_ms"] > 0 and timestamp_ms // 1000 != one["timestamp_ms"] // 1000:
        raise Failure(
            f"{one['url']} changed: its time is {timestamp_ms}, expected {one['timestamp_ms']}"
        )
    if one["size"] >= 0 and size != one["size"]:
        raise Failure(f"{one['url']} changed: {size} bytes, expected {one['size']}")


def unpack(packed: Path, to: Path) -> None:
    """Unpack a zip (or jar) or tar archive; nothing may leave its folder."""
    to.mkdir()
    if zipfile.is_zipfile(packed):
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(to)
            for item in archive.infolist():
                mode = item.external_attr >> 16 & 0o777
                if mode and not item.is_dir():
                    (to / item.filename).chmod(mode | 0o400)
    elif tarfile.is_tarfile(packed):
        with tarfile.open(packed) as archive:
            archive.extractall(to, filter="data")
    else:
        shutil.copyfile(packed, to / packed.name.removesuffix(".packed"))


# -- environment and script ------------------------------------------------------------------------


def prepare(data: Mapping[str, Any], work: Path, home: Path) -> Path:
    """Write the tokens and the script; the script's variables are YARN's, then the context's."""
    local, temporary = home / "local", work / "tmp"
    local.mkdir(parents=True, exist_ok=True)
    temporary.mkdir(exist_ok=True)
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
        "JAVA_HOME": os.environ.get("JAVA_HOME") or java_home(),
        "TMPDIR": str(temporary),
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
    return re.sub(r"\{\{([A-Za-z_]\w*)\}\}", r"$\1", text)


def quoted(text: str) -> str:
    """Quote a value that the shell must take as it stands."""
    return "'" + text.replace("'", "'\\''") + "'"


def java_home() -> str:
    """Return where the host's Java is; empty where there is none."""
    java = shutil.which("java")
    return str(Path(java).resolve().parents[1]) if java else ""


if __name__ == "__main__":
    main()
