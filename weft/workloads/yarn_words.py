"""Values of YARN's properties as Hadoop's Configuration reads them."""

import re
from typing import Any

from weft.model.errors import InputError

# As Float.parseFloat takes it.
FLOAT = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?"
_FLOAT = re.compile(FLOAT)
_HEXADECIMAL = re.compile(r"-?0[xX][0-9a-fA-F]+")


def read_switch(value: str, place: str) -> bool:
    """Read true or false; raises InputError."""
    if value.lower() not in ("true", "false"):
        raise InputError(place, f"expected true or false, got {value!r}")
    return value.lower() == "true"


def read_number(value: Any, place: str) -> float:
    """Read a finite number; raises InputError."""
    text = str(value).strip()
    if _HEXADECIMAL.fullmatch(text):
        number = float(int(text, 16))
    elif _FLOAT.fullmatch(text):
        number = float(text.rstrip("fFdD"))
    else:
        raise InputError(place, f"expected a number, got {value!r}")
    if not abs(number) < 2**53:
        raise InputError(place, f"expected a number, got {value!r}")
    return number
