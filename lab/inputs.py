"""Where the public workloads lie that studies read: $WEFT_DATA, else `../shared/data`."""

import os
from pathlib import Path

from weft.model.errors import InputError


def public_files(pattern: str) -> list[Path]:
    """Return the files that a pattern below the folder names; raises InputError for none."""
    root = Path(os.environ.get("WEFT_DATA", "../shared/data"))
    found = sorted(root.glob(pattern))
    if not found:
        raise InputError("WEFT_DATA", f"{root / pattern} is not there; name the folder of inputs")
    return found
