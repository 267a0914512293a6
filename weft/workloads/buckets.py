"""Grouping and ordering of more rows than the memory holds, through temporary files.

Rows are spread over BUCKETS files by a key; each file is then small enough to hold. Small inputs
never reach the disk. The files have no name and vanish with the process.
"""

import pickle
import tempfile
import zlib
from collections.abc import Iterator
from typing import Any

BUCKETS = 64
# A larger bucket goes to the disk.
BUCKET_MEMORY_BYTES_MAX = 2**20


class Buckets:
    """Rows spread by number of bucket, read back one bucket at a time, in the order written."""

    def __init__(self) -> None:
        self._files = [
            tempfile.SpooledTemporaryFile(BUCKET_MEMORY_BYTES_MAX, prefix="weft-")  # noqa: SIM115
            for _ in range(BUCKETS)
        ]

    def add(self, bucket: int, row: Any) -> None:
        """Put a row into a bucket from 0 to BUCKETS - 1."""
        pickle.dump(row, self._files[bucket], protocol=pickle.HIGHEST_PROTOCOL)

    def drain(self) -> Iterator[list[Any]]:
        """Yield the rows of each bucket, bucket by bucket; each is forgotten when it was read."""
        for file in self._files:
            file.seek(0)
            rows = []
            while True:
                try:
                    rows.append(pickle.load(file))
                except EOFError:
                    break
            file.close()
            yield rows


def bucket_of(key: str) -> int:
    """Return the bucket of a name: the same on every machine and in every run."""
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % BUCKETS
