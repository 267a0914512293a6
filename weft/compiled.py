"""Compiled kernels: numba with the machine code kept on disk, so that a second start is cheap.

Where the code is kept changes no result, so this is no dependency of any decision. NUMBA_CACHE_DIR
wins; else the user's cache, else the temporary directory, else nothing is kept. The folder's name
holds a digest of every kernel file (`*_kernels.py`), because numba notices a change of the called
file only, not of the files whose kernels it inlined.
"""

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def _digest() -> str:
    mixed = hashlib.sha256(numba.__version__.encode())
    root = Path(__file__).resolve().parent.parent
    for floor in ("weft", "rm", "am"):
        for path in sorted((root / floor).rglob("*_kernels.py")):
            mixed.update(path.read_bytes())
    return mixed.hexdigest()[:16]


def _cache_folder() -> str:
    """The first place that can be written, "" where there is none."""
    name = f"weft-kernels-{_digest()}"
    for base in (Path("~/.cache"), Path(tempfile.gettempdir())):
        try:
            folder = base.expanduser() / name
            folder.mkdir(parents=True, exist_ok=True)
            probe = tempfile.TemporaryFile(dir=folder)
        except (OSError, RuntimeError):
            continue
        probe.close()
        return str(folder)
    return ""


if not numba.config.CACHE_DIR:
    numba.config.CACHE_DIR = _cache_folder()
_KEEP = bool(numba.config.CACHE_DIR)


def kernel(function: Kernel) -> Kernel:
    """Compile a function on its first call; it runs without the interpreter's lock."""
    return cast(Kernel, numba.njit(cache=_KEEP, nogil=True)(function))
