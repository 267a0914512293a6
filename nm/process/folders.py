"""What an application that brought its master along leaves on a host, beside its containers' logs.

Its launcher keeps files for all of its containers (`KEPT`), and each container has tokens and
whatever it wrote. All of that goes when the application is over; logs stay, as Weft's own do.
"""

import shutil
from pathlib import Path

KEPT = ("filecache", "local")  # folders of an application, for all of its containers
LOGS = (".log", ".out", ".err")


def clean(application: Path) -> None:
    """Remove an application's files but for logs; what is not there is no matter.

    An application without folders of its own (Weft's own tasks) is left alone.
    """
    if not any((application / name).is_dir() for name in KEPT):
        return
    for path in application.iterdir():
        if path.name in KEPT:
            shutil.rmtree(path, ignore_errors=True)
        elif path.is_dir() and not path.is_symlink():
            _clean_container(path)


def clean_all(root: Path) -> None:
    """Remove what the applications of an earlier process of this node left."""
    for path in root.glob("application_*"):
        clean(path)


def _clean_container(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.is_symlink() or not _is_log(path):
            path.unlink(missing_ok=True)


def _is_log(path: Path) -> bool:
    return path.name in ("stdout", "stderr") or path.suffix in LOGS
