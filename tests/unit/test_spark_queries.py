"""The queries of the Spark study say what they should, on rows in this process."""

from collections import Counter

import pytest

from tools.spark_queries import DAY_MAX, QUERIES, RETURNED, Tables, answer, items, mixed, order
from tools.spark_study import APPLICATIONS, Rows, table

SCALE = 1
TABLES = Tables(Rows.numbers, SCALE, 0.0)
ORDERS = [order(key, TABLES.customers) for key in range(TABLES.count)]
ITEMS = [row for key in range(TABLES.count) for row in items(key)]


def test_the_tables_have_their_rows_whatever_their_parts() -> None:
    assert TABLES.orders() == ORDERS
    assert TABLES.line_items() == ITEMS
    assert len(TABLES.segments()) == TABLES.customers
    assert max(row[2] for row in ORDERS) < DAY_MAX


def test_answers_are_those_of_a_plain_loop() -> None:
    early = [row for row in ITEMS if row[4] < 2_000]
    prices, quantities = Counter[str](), Counter[str]()
    for row in early:
        prices[row[3]] += row[1]
        quantities[row[3]] += row[2]
    assert answer("q1", TABLES) == sorted([k, prices[k], quantities[k]] for k in prices)
    worth = sum(row[1] for row in ITEMS if row[2] < 24 and 400 <= row[4] < 765)
    assert answer("q6", TABLES) == [[0, worth]]
    back = Counter[int]()
    for row in ITEMS:
        if row[3] == RETURNED:
            back[ORDERS[row[0]][1]] += row[1]
    best = sorted(back.items(), key=lambda row: (-row[1], row[0]))[:10]
    assert answer("q10", TABLES) == sorted(map(list, best))
    late = Counter(ORDERS[row[0]][3] for row in ITEMS if row[4] > ORDERS[row[0]][2] + 60)
    assert answer("q12", TABLES) == sorted(map(list, late.items()))
    sums = Counter[int]()
    for row in ITEMS:
        sums[row[0]] += row[2]
    many = [[key, count, ORDERS[key][1]] for key, count in sums.items() if count > 170]
    assert answer("q18", TABLES) == sorted(many)
    assert many
    ours = {c for c in range(TABLES.customers) if mixed(c, 8) % 5 == 1}
    open_orders = {row[0] for row in ORDERS if row[1] in ours and row[2] < 1_200}
    totals = Counter[int]()
    for row in ITEMS:
        if row[0] in open_orders and row[4] > 1_200:
            totals[row[0]] += row[1]
    top = sorted(totals.items(), key=lambda row: (-row[1], row[0]))[:10]
    assert answer("q3", TABLES) == sorted(map(list, top))


def test_there_are_twelve_with_names_of_their_own_and_a_row_each() -> None:
    assert len({one.name for one in APPLICATIONS}) == 12 == 2 * len(QUERIES)
    runs = [{one.name: 2.0 + k for one in APPLICATIONS} for k in range(3)]
    lines = table({"capacity": runs, "drf": runs[:1]}).splitlines()
    assert lines[2] == f"| {APPLICATIONS[0].name} | 3.0 (2 to 4) | 2.0 |"
    assert lines[-2] == "| **mean, s** | **3.0 (2 to 4)** | **2.0** |"


@pytest.mark.parametrize("query", sorted(QUERIES))
def test_no_answer_is_empty(query: str) -> None:
    assert answer(query, TABLES)
