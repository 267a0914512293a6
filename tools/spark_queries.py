"""A Spark application that runs one query over generated tables: what the study submits.

    spark-submit spark_queries.py RESULT READY GATE QUERY SCALE

The tables are TPC-H's in small (customers, orders, line items; every row is a function of its key,
so nothing is stored), the queries our own after Q1, Q3, Q6, Q10, Q12 and Q18. A task that scans
waits as long as a slow disk would take, so that a few cores can hold many tasks. It tells that its
context is up in the file READY and waits for GATE, which holds the Unix time of the start; RESULT
then has when the query began and ended, and its answer.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

# Orders of scale 1; each has four line items, and there are a tenth as many customers.
ORDERS_AT_SCALE_1 = 1_500
# A scan waits so long for an order and its items, which makes a second a task.
READ_S = 1.0 / 250
SCAN_TASKS_AT_SCALE_1 = 6
REDUCERS = 4
RETURNED, DAY_MAX = "R", 2_400


def mixed(number: int, salt: int) -> int:
    """Return a well mixed function of a key (the finaliser of SplitMix64)."""
    z = (number * 0x9E3779B97F4A7C15 + salt * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return z ^ (z >> 31)


def order(key: int, customers: int) -> tuple[int, int, int, int]:
    """Return (key, customer, day, priority)."""
    return key, mixed(key, 1) % customers, mixed(key, 2) % DAY_MAX, mixed(key, 3) % 5


def items(key: int) -> Iterator[tuple[int, int, int, str, int]]:
    """Return an order's line items: (order, price, quantity, flag, day of shipping)."""
    for number in range(4):
        row = key * 4 + number
        flag = "RAN"[mixed(row, 4) % 3]
        late = 1 + mixed(row, 5) % 90
        day = mixed(key, 2) % DAY_MAX + late
        yield key, 100 + mixed(row, 6) % 10_000, 1 + mixed(row, 7) % 50, flag, day


class Tables:
    """The generated tables at a scale; `parallel(parts)` gives a collection of parts' numbers."""

    def __init__(self, parallel: Callable[[int], Any], scale: int, read_s: float = READ_S) -> None:
        self.parallel, self.read_s = parallel, read_s
        self.parts, self.count = SCAN_TASKS_AT_SCALE_1 * scale, ORDERS_AT_SCALE_1 * scale
        self.customers = self.count // 10

    def _scan(self, rows_of: Callable[[int], Iterable[Any]], count: int) -> Any:
        parts, read_s = self.parts, self.read_s

        def scanned(part: int) -> Iterator[Any]:
            keys = range(part * count // parts, (part + 1) * count // parts)
            time.sleep(len(keys) * read_s)
            for key in keys:
                yield from rows_of(key)

        return self.parallel(parts).flatMap(scanned)

    def orders(self) -> Any:
        """Return rows of `order`."""
        customers = self.customers
        return self._scan(lambda key: (order(key, customers),), self.count)

    def line_items(self) -> Any:
        """Return rows of `items`."""
        return self._scan(items, self.count)

    def segments(self) -> Any:
        """Return (customer, market segment)."""
        return self._scan(lambda key: ((key, mixed(key, 8) % 5),), self.customers)


def _sum(one: Any, other: Any) -> Any:
    return one + other


def pricing(tables: Tables) -> list[Any]:
    """Return price and quantity by flag of what was shipped early (Q1)."""
    early = tables.line_items().filter(lambda row: row[4] < 2_000)
    pairs = early.map(lambda row: (row[3], complex(row[1], row[2])))
    return [[k, int(v.real), int(v.imag)] for k, v in pairs.reduceByKey(_sum, REDUCERS).collect()]


def shipping(tables: Tables) -> list[Any]:
    """Return the ten dearest orders of one segment that were shipped late (Q3)."""
    ours = tables.segments().filter(lambda row: row[1] == 1)
    before = tables.orders().filter(lambda row: row[2] < 1_200).map(lambda row: (row[1], row[0]))
    chosen = ours.join(before, REDUCERS).map(lambda row: (row[1][1], 0))
    late = tables.line_items().filter(lambda row: row[4] > 1_200).map(lambda row: (row[0], row[1]))
    found = late.join(chosen, REDUCERS).map(lambda row: (row[0], row[1][0]))
    totals = found.reduceByKey(_sum, REDUCERS).collect()
    return [list(row) for row in sorted(totals, key=lambda row: (-row[1], row[0]))[:10]]


def forecast(tables: Tables) -> list[Any]:
    """Return what small quantities of one year are worth (Q6)."""
    small = tables.line_items().filter(lambda row: row[2] < 24 and 400 <= row[4] < 765)
    return [
        [
            0,
            sum(
                total
                for _, total in small.map(lambda row: (row[0] % REDUCERS, row[1]))
                .reduceByKey(_sum, REDUCERS)
                .collect()
            ),
        ]
    ]


def returned(tables: Tables) -> list[Any]:
    """Return the ten customers who gave most back (Q10)."""
    back = tables.line_items().filter(lambda row: row[3] == RETURNED)
    worth = back.map(lambda row: (row[0], row[1])).reduceByKey(_sum, REDUCERS)
    whose = tables.orders().map(lambda row: (row[0], row[1]))
    by_customer = worth.join(whose, REDUCERS).map(lambda row: (row[1][1], row[1][0]))
    totals = by_customer.reduceByKey(_sum, REDUCERS).collect()
    return [list(row) for row in sorted(totals, key=lambda row: (-row[1], row[0]))[:10]]


def urgent(tables: Tables) -> list[Any]:
    """Return how many items of each priority were shipped two months late (Q12)."""
    late = tables.line_items().map(lambda row: (row[0], row[4]))
    priorities = tables.orders().map(lambda row: (row[0], (row[2], row[3])))
    joined = late.join(priorities, REDUCERS).filter(lambda row: row[1][0] > row[1][1][0] + 60)
    counts = joined.map(lambda row: (row[1][1][1], 1)).reduceByKey(_sum, REDUCERS).collect()
    return [list(row) for row in counts]


def large(tables: Tables) -> list[Any]:
    """Return who placed the orders of the largest quantities (Q18)."""
    quantities = tables.line_items().map(lambda row: (row[0], row[2]))
    large_ones = quantities.reduceByKey(_sum, REDUCERS).filter(lambda row: row[1] > 170)
    whose = tables.orders().map(lambda row: (row[0], row[1]))
    return [[key, *row] for key, row in large_ones.join(whose, REDUCERS).collect()]


QUERIES: dict[str, Callable[[Tables], list[Any]]] = {
    "q1": pricing,
    "q3": shipping,
    "q6": forecast,
    "q10": returned,
    "q12": urgent,
    "q18": large,
}


def answer(query: str, tables: Tables) -> list[Any]:
    """Return a query's rows in order."""
    return sorted(QUERIES[query](tables))


def main(arguments: list[str]) -> None:
    """Run as an application."""
    result, ready, gate, query, scale = arguments
    from pyspark.sql import SparkSession  # type: ignore[import-not-found, unused-ignore]

    context = SparkSession.builder.getOrCreate().sparkContext
    Path(ready).touch()
    while not os.path.exists(gate):
        time.sleep(0.05)
    begins = float(Path(gate).read_text())
    time.sleep(max(0.0, begins - time.time()))
    rows = answer(query, Tables(lambda parts: context.parallelize(range(parts), parts), int(scale)))
    told = {"began_s": begins, "ended_s": time.time(), "rows": rows}
    made = Path(f"{result}.part")
    made.write_text(json.dumps(told))
    made.rename(result)
    context.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
