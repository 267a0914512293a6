"""The table of rules as one compiled function a message, for the many messages that break none.

`quick(kind, ...)` writes a function `(message, d) -> bool` with every comparison in line: True
where the message surely keeps the rules. What breaks one is found, and named, by the rules one by
one (`weft.wire.rules.check`), which stay the law.
"""

from collections.abc import Callable, Mapping
from typing import Any

Quick = Callable[[Any, int], bool]
# Short names that were found good are not checked again.
KNOWN_NAMES_MAX, KNOWN_NAME_CHARS_MAX = 10_000, 64
_known: set[str] = set()


def is_known(name: str, check: Callable[[Any, int], str]) -> bool:
    """Return whether a name passes `check`; good ones are remembered."""
    if check(name, 0):
        return False
    if len(name) <= KNOWN_NAME_CHARS_MAX:
        if len(_known) >= KNOWN_NAMES_MAX:
            _known.clear()
        _known.add(name)
    return True


def quick(kind: type, rules: Mapping[type, Mapping[str, Any]]) -> Quick:
    """Compile the rules of one type of message."""
    writer = _Writer(rules)
    for name, rule in rules[kind].items():
        writer.test(f"m.{name}", rule, 1)
    lines = ["def quick(m, d):", *writer.first, *writer.lines, "    return True"]
    exec("\n".join(lines), writer.scope)
    made: Quick = writer.scope["quick"]
    return made


class _Writer:
    """Writes statements that return False where a value breaks its rule."""

    def __init__(self, rules: Mapping[type, Mapping[str, Any]]) -> None:
        # These lines precede all others.
        self.first: list[str] = []
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {"known": _known, "is_known": is_known}
        self._rules = rules
        self._count = 0

    def test(self, value: str, rule: Any, depth: int) -> None:
        """Have a value tested; `value` is an expression."""
        if rule.check is None:
            return
        self._count += 1
        n = self._count
        self.scope[f"check{n}"] = rule.check
        quickly = rule.quick.format(v=f"v{n}", check=f"check{n}")
        self._say(depth, f"v{n} = {value}")
        if isinstance(rule.item, type):
            self._each(n, rule, depth)
            return
        more = 0
        if rule.repeats and depth > 1:
            # Most values equal that of the item before, which was good.
            self.first.append(f"    last{n} = None")
            self._say(depth, f"if v{n} != last{n}:")
            self._say(depth + 1, f"last{n} = v{n}")
            more = 1
        self._say(depth + more, f"if not ({quickly or f'not check{n}(v{n}, d)'}):")
        self._say(depth + more + 1, "return False")

    def _each(self, n: int, rule: Any, depth: int) -> None:
        """Write the test of a list of records: the fields of each tested in line."""
        self._say(depth, f"if v{n}:")
        self._say(depth + 1, f"if not ({rule.quick.format(v=f'v{n}', check=f'check{n}')}):")
        self._say(depth + 2, "return False")
        self._say(depth + 1, f"for one{n} in v{n}:")
        inner = len(self.lines)
        for name, row in self._rules[rule.item].items():
            self.test(f"one{n}.{name}", row, depth + 2)
        if len(self.lines) == inner:
            self._say(depth + 2, "pass")

    def _say(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)
