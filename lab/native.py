"""Where the native build is (`make native`), and whether it is of this very code."""

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("weft", "rm", "am", "nm", "sim", "lab")
# The file with the digest of the sources that were compiled.
STAMP = "SOURCES"


def sources_digest(root: Path) -> str:
    """Return a hash of every Python file of the packages below a folder."""
    mixed = hashlib.sha256()
    for name in PACKAGES:
        for path in sorted((root / name).rglob("*.py")):
            mixed.update(f"{path.relative_to(root)}\0".encode())
            mixed.update(path.read_bytes())
    return mixed.hexdigest()


def native_build() -> Path | None:
    """Return the folder of a native build of the running code; None without one, or an older."""
    folder = ROOT / "build/native"
    stamp = folder / STAMP
    if not stamp.is_file() or stamp.read_text().strip() != sources_digest(ROOT):
        return None
    return folder
