"""Listings in pages that fit one message, however long the names and reasons in them are."""

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from weft.model.errors import InputError
from weft.protocol.requests import ApplicationReport, ContainerReport, NodeReport, Page

ITEMS_MAX = 10_000
# A page takes a quarter of what one message may hold.
PAGE_BYTES_MAX = 16 * 1024 * 1024
# Numbers and amounts of a report take less on the wire.
REPORT_NUMBERS_BYTES = 1024
# A character takes no more in UTF-8.
CHARACTER_BYTES_MAX = 4

Item = TypeVar("Item")
Report = TypeVar("Report", ApplicationReport, NodeReport, ContainerReport)


def page(
    items: Iterable[Item],
    report: Callable[[Item], Report],
    key: Callable[[Item], str],
    limit: int = 0,
) -> Page[Report]:
    """Return reports of the first items that fit; `next` is the last one's key if more follow."""
    most = min(limit or ITEMS_MAX, ITEMS_MAX)
    found: list[Report] = []
    size, last = 0, ""
    for item in items:
        if len(found) == most:
            return Page(tuple(found), last)
        one = report(item)
        size += weight(one)
        if found and size > PAGE_BYTES_MAX:
            return Page(tuple(found), last)
        found.append(one)
        last = key(item)
    return Page(tuple(found), "")


def weight(report: ApplicationReport | NodeReport | ContainerReport) -> int:
    """Return the most bytes that a report may take on the wire."""
    texts: tuple[str, ...]
    if isinstance(report, ApplicationReport):
        texts = (
            report.name,
            report.user,
            report.queue,
            report.diagnostics,
            report.kind,
            report.tracking_url,
            report.master_address,
            report.master_node,
            *report.tags,
        )
    elif isinstance(report, NodeReport):
        texts = (
            report.node_id,
            report.address,
            report.rack,
            report.health_report,
            report.lacking,
            *report.labels,
        )
    else:
        texts = (report.node_id, report.node_address, report.stage, report.message)
    return REPORT_NUMBERS_BYTES + CHARACTER_BYTES_MAX * sum(map(len, texts)) + 8 * len(texts)


def number_of(token: str, below: int = 2**63) -> int:
    """Return the number in a token; raises InputError for none, or one never given out."""
    # int() takes more than this: " 1_0", "+1", digits of other scripts.
    if re.fullmatch(r"0|[1-9][0-9]{0,18}", token) and int(token) < below:
        return int(token)
    raise InputError("page", f"{token!r:.40} was never given out")
