"""Compiled kernels: numba with the machine code kept on disk, so that a second start is cheap.

Where the code is kept changes no result, so this is no dependency of any decision. NUMBA_CACHE_DIR
wins; else the user's cache, else the temporary directory, else nothing is kept. What is kept goes
by a digest of every kernel file (`*_kernels.py`), of the modules whose constants they take and of
this one, because numba notices a change of the called file only, not of the files whose kernels it
inlined nor of how they are compiled. It does not go by where Weft lies: another checkout or release
with the same kernels finds them compiled.
"""

import hashlib
import multiprocessing
import re
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numba

from weft.policies.first_compile import TEXT

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr  # noqa: PLC0414  # as mypyc follows it
else:

    def mypyc_attr(**attributes: Any) -> Callable[[type], type]:
        """Tell mypyc of a class (`make native`), which needs no package where it runs."""
        return lambda kind: kind


Kernel = TypeVar("Kernel", bound=Callable[..., object])


_ROOT = Path(__file__).resolve().parents[2]
_FLOORS = ("weft", "rm", "am")
_IMPORTED = re.compile(r"^from ((?:weft|rm|am)\.[\w.]+) import", re.MULTILINE)


def _digest() -> str:
    kernels = [file for floor in _FLOORS for file in (_ROOT / floor).rglob("*_kernels.py")]
    named = {name for file in kernels for name in _IMPORTED.findall(file.read_text())}
    imported = {_ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in named}
    mixed = hashlib.sha256(numba.__version__.encode())
    for path in sorted({Path(__file__).resolve(), *kernels, *filter(Path.is_file, imported)}):
        mixed.update(path.read_bytes())
    return mixed.hexdigest()[:16]


DIGEST = _digest()


def _cache_folder() -> str:
    """Return the first place that can be written, "" where there is none."""
    name = f"weft-kernels-{DIGEST}"
    for base in (Path("~/.cache"), Path(tempfile.gettempdir())):
        try:
            folder = base.expanduser() / name
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return str(folder)
        except (OSError, RuntimeError):
            continue
    return ""


def _load_without_blas() -> None:
    """Load numba's array functions without scipy: that import costs a third of a small command.

    numba asks scipy for BLAS before the first kernel runs, and no kernel multiplies matrices.
    """
    if "scipy" in sys.modules:
        return
    modules = cast(dict[str, object], sys.modules)
    modules["scipy"] = None
    try:
        import_module("numba.np.arraymath")
    finally:
        del modules["scipy"]


_caching: Any = import_module("numba.core.caching")


class KeptByContent(_caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """Where numba keeps a kernel: by what it was made of, not by the path of its file."""

    def __init__(self, function: Callable[..., object], file: str) -> None:
        super().__init__(function, file)
        package = ".".join(Path(file).resolve().parent.relative_to(_ROOT).parts)
        self._cache_path = str(Path(_config.CACHE_DIR) / f"{package}-{DIGEST}")

    @classmethod
    def from_function(cls, function: Callable[..., object], file: str) -> "KeptByContent | None":
        """Return None for a function that the digest knows nothing of."""
        path = Path(file).resolve()
        known = any(path.is_relative_to(_ROOT / floor) for floor in _FLOORS)
        if not (known and path.name.endswith("_kernels.py")):
            return None
        return cast("KeptByContent | None", super().from_function(function, file))


class FirstCompile:
    """Hears of every compilation (numba's event `numba:compile`), not of code that was kept.

    A process of one of Python's pools says nothing: the words of who started it are enough.
    """

    def __init__(self) -> None:
        self._told = False

    def notify(self, event: object) -> None:
        """Tell it on stderr, the first time."""
        if self._told:
            return
        self._told = True
        if multiprocessing.parent_process() is None:
            print(TEXT, file=sys.stderr, flush=True)


_load_without_blas()
_event: Any = import_module("numba.core.event")
_event.Listener.register(FirstCompile)
_event.register("numba:compile", FirstCompile())
_config: Any = numba.config
if not _config.CACHE_DIR:
    _config.CACHE_DIR = _cache_folder()
_KEEP = bool(_config.CACHE_DIR)
# A numba that has no such setting keeps everything by path.
if _KEEP and getattr(_config, "CACHE_LOCATOR_CLASSES", None) == "":
    _usual = [kind.__name__ for kind in _caching.CacheImpl._locator_classes]
    _config.CACHE_LOCATOR_CLASSES = ",".join([f"{__name__}.{KeptByContent.__name__}", *_usual])


def kernel(function: Kernel) -> Kernel:
    """Compile a function on its first call; a planner's runs without the interpreter's lock.

    Planners use several threads. What other kernels do is done in microseconds, of which letting go
    of the lock and taking it again would be a part of one.

    It may not make arrays: then numba counts no references, which took half of the time of loops
    that hand arrays on, and more where two threads count on the same array.
    """
    return _compile(function, _nrt=False)


def inner_kernel(function: Kernel) -> Kernel:
    """Return a kernel that only kernels call: it compiles in half the time, as Python never enters.

    It becomes part of its callers: a call that hands 25 arrays on would copy 175 words, which took
    a third of the time of list schedules.
    """
    options = dict.fromkeys(("no_cpython_wrapper", "no_cfunc_wrapper", "forceinline"), True)
    return _compile(function, _nrt=False, **options)


def making_kernel(function: Kernel) -> Kernel:
    """Return a kernel that makes arrays."""
    return _compile(function)


def direct(function: Kernel, *arguments: object) -> Kernel:
    """Return the machine code of a kernel for such arguments, without numba's look at each of them.

    That look costs more than a short kernel does. The caller warrants that every later argument is
    like its example: type, number of dimensions, order in memory, writable or not.
    """
    dispatcher: Any = function
    if not hasattr(dispatcher, "overloads"):
        # NUMBA_DISABLE_JIT leaves plain Python.
        return function
    typeof: Any = numba.typeof
    return cast(Kernel, dispatcher.compile(tuple(typeof(value) for value in arguments)))


class Steady(Generic[Kernel]):
    """A kernel always called with arguments like those of its first call: `direct` then.

    The look at each argument costs as much as a short kernel where tables of many arrays are given.
    It is called by its `code`, which that first call replaces with the machine code: a call of the
    object itself would be one more each time.
    """

    __slots__ = ("_function", "code")

    def __init__(self, function: Kernel) -> None:
        self._function = function
        self.code: Kernel = cast(Kernel, self._begin)

    def _begin(self, *arguments: object) -> object:
        """Compile for the first arguments, then call the machine code."""
        self.code = direct(self._function, *arguments)
        return self.code(*arguments)


def steady(function: Kernel) -> Steady[Kernel]:
    """Return a kernel always called with arguments like those of its first call."""
    return Steady(function)


def _compile(function: Kernel, **options: bool) -> Kernel:
    njit: Any = numba.njit
    plans = function.__module__.startswith("am.plan.")
    return cast(Kernel, njit(cache=_KEEP, nogil=plans, **options)(function))
