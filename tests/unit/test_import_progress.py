"""What an import has read of its files is known while it reads, packed or not."""

import gzip
from pathlib import Path

import pytest

from weft.workloads.documents import METER, Meter, read_lines, read_text

ROWS = 160_000  # several of the blocks in which Python unpacks a file


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_bytes_on_disk_are_counted_as_they_are_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows.csv{suffix}"
    rows = "".join(f"{number},{number**5 % 7919}\n" for number in range(ROWS))
    path.write_bytes(gzip.compress(rows.encode()) if suffix else rows.encode())
    size = path.stat().st_size
    token = METER.set(meter := Meter())
    try:
        seen = [meter.bytes for _ in read_lines(path)]
    finally:
        METER.reset(token)
    assert len(seen) == ROWS
    assert 0 < seen[0] < size / 2 < seen[-1]
    assert seen == sorted(seen)
    assert size <= meter.bytes <= size + 8, "the first bytes are looked at twice"
    read_text(path)
    assert meter.bytes <= size + 8, "nothing counts where nobody looks"
