"""On the node, in the container: bring a container's files, through caches that share them.

Three visibilities, as YARN has them: `public` files are brought once a node, `private` ones once a
user, an application's once an application. What names its application in its address (Spark's
staging folder) is that application's own, whatever it is said to be: nobody else can ask for it.
The caches of a node have a bound; what was used longest ago goes first, and nothing that a
container runs with: its process holds a lock on every file of its own until it ends, however it
ends. It needs the standard library only.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tarfile
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

CHUNK = 1 << 20
# The node makes one below its root; each application's folder has one, too.
SHARED_FOLDER = "filecache"
TIMEOUT_S = 60.0


class Failure(Exception):
    """The container cannot run."""


class Places(NamedTuple):
    """Where files are kept for whom.

    `shared` is the node's cache (None: it shares nothing), `name` that of the application.
    """

    application: Path
    shared: Path | None
    user: str
    name: str

    def of(self, one: Mapping[str, Any]) -> Path:
        """Return the cache that a resource belongs to."""
        own = one["visibility"] == "application" or self.name in one["url"]
        if own or self.shared is None:
            return self.application
        if one["visibility"] == "public":
            return self.shared / "public"
        return self.shared / hashlib.sha256(self.user.encode()).hexdigest()[:20]


def places(root: Path | None, home: Path, user: str) -> Places:
    """Return where this container's files are kept; `home` is its application's folder.

    The node makes the shared cache; in a sandbox it is not to be seen, and each application has
    its own.
    """
    shared = None if root is None else root / SHARED_FOLDER
    if shared is not None and not (shared.is_dir() and os.access(shared, os.W_OK | os.X_OK)):
        shared = None
    return Places(home / SHARED_FOLDER, shared, user, home.name)


def localise(
    resources: list[Mapping[str, Any]], work: Path, where: Places, bound: int
) -> tuple[int, int]:
    """Bring every resource, and link it into the work folder; `bound` in bytes, of what is shared.

    Returns how many were fetched and how many were there. The locks that keep them are inherited
    by whatever this process becomes.
    """
    fetched = 0
    where.application.mkdir(parents=True, exist_ok=True)
    for one in resources:
        link = work / one["name"]
        if work.resolve() not in link.resolve().parents:
            raise Failure(f"resource {one['name']!r} would lie outside the container's folder")
        link.parent.mkdir(parents=True, exist_ok=True)
        kept, fresh = bring(one, where.of(one))
        fetched += fresh
        if not (link.is_symlink() or link.exists()):
            link.symlink_to(kept)
    if fetched and where.shared is not None:
        trim(where.shared, bound)
    return fetched, len(resources) - fetched


def bring(one: Mapping[str, Any], cache: Path) -> tuple[Path, bool]:
    """Return the place of a resource in a cache, and whether it was fetched for it.

    Whoever comes first fetches it, the others wait.
    """
    cache.mkdir(parents=True, exist_ok=True)
    text = f"{one['url']}|{one['size']}|{one['timestamp_ms']}|{one['kind']}"
    folder = cache / hashlib.sha256(text.encode()).hexdigest()[:20]
    name = Path(urllib.parse.urlsplit(one["url"]).path).name or "resource"
    with _locked(folder.with_suffix(".lock"), fcntl.LOCK_EX) as lock:
        assert lock is not None
        used = folder.with_suffix(".use")
        # never closed: it ends with the container's process
        kept = os.open(used, os.O_RDWR | os.O_CREAT, 0o600)
        os.set_inheritable(kept, True)
        fcntl.flock(kept, fcntl.LOCK_SH)
        os.utime(used)
        if folder.exists():
            return folder / name, False
        fresh = folder.with_suffix(".new")
        remove(fresh)
        fresh.mkdir()
        if one["kind"] == "archive":
            packed = fresh / f"{name}.packed"
            download(one, packed)
            unpack(packed, fresh / name)
            packed.unlink()
        else:
            download(one, fresh / name)
            (fresh / name).chmod(0o500)
        os.pwrite(kept, str(_size(fresh)).encode(), 0)
        fresh.rename(folder)
    return folder / name, True


def trim(shared: Path, bound: int) -> None:
    """Remove what was used longest ago until a node's caches hold no more than `bound` bytes.

    What a container runs with stays, so they may hold more for a while.
    """
    known = []
    for used in shared.glob("*/*.use"):
        with contextlib.suppress(OSError, ValueError):
            known.append((used.stat().st_mtime, int(used.read_text() or 0), used))
    total = sum(size for _, size, _ in known)
    for _, size, used in sorted(known):
        if total <= bound:
            return
        with _locked(used.with_suffix(".lock"), fcntl.LOCK_EX | fcntl.LOCK_NB) as lock:
            if lock is None:
                continue
            with _locked(used, fcntl.LOCK_EX | fcntl.LOCK_NB) as own:
                if own is None:
                    continue
                remove(used.with_suffix(""))
                remove(used.with_suffix(".new"))
                used.unlink(missing_ok=True)
                used.with_suffix(".lock").unlink(missing_ok=True)
                total -= size


def remove(folder: Path) -> None:
    """Remove a folder of the cache, whatever the modes of what an archive brought."""
    for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        if not place.is_symlink() and place.is_dir():
            place.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path, how: int) -> Iterator[int | None]:
    """Hold a lock file; None where somebody else does and `how` says not to wait."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, how)
        except BlockingIOError:
            os.close(file)
            yield None
            return
        try:
            same = os.fstat(file).st_ino == path.stat().st_ino
        except FileNotFoundError:
            same = False
        # A file that was removed while this one waited locks nothing.
        if same:
            break
        os.close(file)
    try:
        yield file
    finally:
        os.close(file)


def _size(folder: Path) -> int:
    """Return bytes below a folder; links count nothing."""
    return sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )


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
        with urllib.request.urlopen(f"{base}?op=GETFILESTATUS", timeout=TIMEOUT_S) as answer:
            status = json.load(answer)["FileStatus"]
        check(one, status["length"], status["modificationTime"])
        address = f"{base}?op=OPEN"
    with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer, to.open("wb") as file:
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
            for item in archive.infolist():
                # The returned path is used, never the item's name, which may lead out of the
                # folder.
                made = Path(archive.extract(item, to))
                mode = item.external_attr >> 16 & 0o777
                if mode and not item.is_dir():
                    made.chmod(mode | 0o400)
    elif tarfile.is_tarfile(packed):
        with tarfile.open(packed) as archive:
            archive.extractall(to, filter="data")
    else:
        shutil.copyfile(packed, to / packed.name.removesuffix(".packed"))
