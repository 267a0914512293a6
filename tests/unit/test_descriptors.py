"""A process says when its descriptors run out, and when there are enough again."""

import contextlib
import os
import resource

from weft.runtime.descriptors import Descriptors, in_use


def test_each_change_is_said_once() -> None:
    seen = Descriptors()
    said = [seen.judge(used, 100) for used in (10, 90, 91, 100, 95, 90, 12, 100)]
    assert said == ["", "", "short", "", "", "enough", "", "short"]


def test_descriptors_are_counted_also_where_none_is_left() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    used, _ = in_use()
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    assert in_use()[0] == used + 5
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, limit[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        assert in_use() == (used + 8, used + 8)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        for file in opened:
            os.close(file)
    assert in_use()[0] == used
