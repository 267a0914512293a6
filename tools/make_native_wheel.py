"""Make a wheel with compiled cores for this platform, in `dist/native`; `make native` comes before.

    make dist-native
    pipx install dist/native/weft_rm-*.whl

It is the plain wheel with the libraries that mypyc made of the hot modules put beside their
sources: Python takes the library. The plain wheel and the sdist need no compiler, run anywhere,
and decide the same, only slower. Its tag names this interpreter, and the C library that it was
built with as the oldest that it needs.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.tags import sys_tags

from lab.native import native_build
from tools.make_dist import DIST, UMASK, epoch_s


def make(folder: Path, built: Path, plain: Path) -> Path:
    """Put the wheel of a native build and the plain wheel into a folder; return its path.

    The same commit gives the same bytes (`tools/make_dist.py`).
    """
    tags = list(sys_tags())
    tag = next((tag for tag in tags if tag.platform.startswith("manylinux")), tags[0])
    with tempfile.TemporaryDirectory() as work:
        _wheel("unpack", "--dest", work, str(plain))
        (root,) = Path(work).iterdir()
        for library in built.rglob("*.so"):
            copy = root / library.relative_to(built)
            shutil.copyfile(library, copy)
            copy.chmod(0o755)
        (about,) = root.glob("*.dist-info/WHEEL")
        about.write_text(
            about.read_text()
            .replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
            .replace("Tag: py3-none-any", f"Tag: {tag}")
        )
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _wheel("pack", "--dest-dir", str(folder), str(root))
    (made,) = folder.iterdir()
    return made


def _wheel(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wheel", *arguments],
        env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch_s())},
        umask=UMASK,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"wheel {arguments[0]} failed:\n{done.stdout}{done.stderr}")


def main() -> None:
    """Make it of build/native and dist/; SystemExit where one is missing."""
    built = native_build()
    if built is None:
        raise SystemExit("build/native is missing, or of other code: run `make native` first")
    plain = list(DIST.glob("weft_rm-*-py3-none-any.whl"))
    if len(plain) != 1:
        raise SystemExit(f"dist holds {len(plain)} plain wheels, not one: run `make dist` first")
    print(make(DIST / "native", built, plain[0]).relative_to(DIST.parent))


if __name__ == "__main__":
    main()
