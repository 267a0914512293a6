"""Write the Grafana dashboards of deploy/grafana/dashboards; `--check` says whether they are stale.

A panel is a row of the tables below; tests run every query against a real Prometheus that scrapes a
busy cluster, so a panel without data is a failing test.
"""

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "dashboards"
SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
RATE = "$__rate_interval"
# Panels are so many cells of the grid high.
COMPACT, HIGH = 4, 8


@dataclass(frozen=True)
class Panel:
    """One panel: `queries` are (PromQL, legend); `text` says what to look for.

    `kind` is lines, stack, number or table; `width` is in the grid's 24 columns.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    text: str = ""
    kind: str = "lines"
    width: int = 12


@dataclass(frozen=True)
class Board:
    """One dashboard: rows of panels under titles; `chosen` are the labels to choose by on top."""

    name: str
    title: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    chosen: tuple[str, ...] = ("cluster",)


# A label that is chosen by -> (families that have it, where its values come from).
VARIABLES = {
    "cluster": ("", "weft_nodes"),
    "queue": ("weft_queue_|queue:|weft_containers_granted_total", "weft_queue_used_ratio"),
    "node": ("weft_node_", "weft_node_containers"),
}
_SELECTOR = re.compile(
    r"(?<![\w:\"])((?:(?:weft|resource|queue):[\w:]+|(?:weft|process)_\w+|scrape_samples_scraped|up\b))"
    r"(?:\{([^}]*)\})?"
)


def one(title: str, unit: str, query: str, legend: str = "", **more: Any) -> Panel:
    """Return a panel with one query."""
    return Panel(title, unit, ((query, legend),), **more)


def number(title: str, unit: str, query: str) -> Panel:
    """Return a big number; a series that never was counts as 0."""
    return one(title, unit, f"{query} or vector(0)", kind="number", width=4)


def quantiles(title: str, family: str, match: str = "", by: str = "", **more: Any) -> Panel:
    """Return median, 95th and 99th percentile of a histogram."""
    chosen = f"{{{match}}}" if match else ""
    group = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    rate = f"sum by ({group}) (rate({family}_bucket{chosen}[{RATE}]))"
    rows = [
        (f"histogram_quantile({q}, {rate})", f"p{100 * q:g}{legend}") for q in (0.5, 0.95, 0.99)
    ]
    return Panel(title, "s", tuple(rows), **more)


CLUSTER = Board(
    "cluster",
    "Weft: cluster",
    (
        (
            "Now",
            (
                number("Nodes running", "short", 'sum(weft_nodes{state="RUNNING"})'),
                number("Nodes lost", "short", 'sum(weft_nodes{state="LOST"})'),
                number("Applications", "short", "sum(weft_apps)"),
                number("Containers held", "short", "sum(weft_node_containers)"),
                number(
                    "Containers pending",
                    "short",
                    'sum(weft_queue_pending_containers{queue="root"})',
                ),
                number("Granted per second", "short", "weft:containers_granted:rate1m"),
            ),
        ),
        (
            "Load",
            (
                one(
                    "Allocated share of the cluster",
                    "percentunit",
                    "resource:weft_cluster_allocated:ratio",
                    "{{resource}}",
                ),
                Panel(
                    "CPU",
                    "short",
                    (
                        ('weft_cluster_capacity{resource="cpu"}', "capacity"),
                        ('weft_cluster_allocated{resource="cpu"}', "allocated"),
                        ('sum(weft_node_used{resource="cpu"})', "used"),
                    ),
                ),
                Panel(
                    "Memory",
                    "bytes",
                    (
                        ('weft_cluster_capacity{resource="memory"}', "capacity"),
                        ('weft_cluster_allocated{resource="memory"}', "allocated"),
                        ('sum(weft_node_used{resource="memory"})', "used"),
                    ),
                ),
                one(
                    "Leftover",
                    "short",
                    'weft_cluster_leftover{unit!="bytes"}',
                    "{{resource}}",
                    text="What nobody was granted; it is fragments where much is pending.",
                ),
                one(
                    "Overbooked",
                    "short",
                    "weft_cluster_overbooked",
                    "{{resource}}",
                    text="Divisible resources that a policy granted beyond capacity.",
                ),
                one(
                    "Containers that ended",
                    "ops",
                    f"sum by (outcome) (rate(weft_containers_ended_total[{RATE}]))",
                    "{{outcome}}",
                    kind="stack",
                ),
            ),
        ),
    ),
)

QUEUES = Board(
    "queues",
    "Weft: queues and fairness",
    (
        (
            "Shares",
            (
                one(
                    "Dominant share of each queue",
                    "percentunit",
                    "weft_queue_used_ratio",
                    "{{queue}}",
                ),
                one("Guaranteed share", "percentunit", "weft_queue_capacity_ratio", "{{queue}}"),
                one(
                    "Use over guarantee",
                    "percentunit",
                    "queue:weft_queue_used_of_guarantee:ratio",
                    "{{queue}}",
                    text="1 is the guarantee; only queues that hold or want count.",
                ),
                one(
                    "Jain's index of fairness",
                    "none",
                    "weft:queue_fairness:jain",
                    "index",
                    text="Over queues that hold or want something: 1 is even.",
                ),
                one(
                    "Deficit",
                    "none",
                    "weft_queue_deficit",
                    "{{queue}}",
                    text="The counter of policies that have one (Graphene's bounded unfairness).",
                ),
                one(
                    "Grants by kind of ask",
                    "ops",
                    f"sum by (kind) (rate(weft_grants_total[{RATE}]))",
                    "{{kind}}",
                    kind="stack",
                    text="ALTRUISTIC is leftover that Carbyne's jobs gave away.",
                ),
                one(
                    "Containers in leftover",
                    "short",
                    "weft_leftover_containers",
                    "containers",
                    text="Granted to ALTRUISTIC asks, whose jobs could have waited.",
                ),
            ),
        ),
        (
            "Demand",
            (
                one("Pending containers", "short", "weft_queue_pending_containers", "{{queue}}"),
                one("Pending CPU", "short", 'weft_queue_pending{resource="cpu"}', "{{queue}}"),
                one("Allocated CPU", "short", 'weft_queue_allocated{resource="cpu"}', "{{queue}}"),
                one(
                    "Allocated memory",
                    "bytes",
                    'weft_queue_allocated{resource="memory"}',
                    "{{queue}}",
                ),
                one("Applications", "short", "weft_queue_apps", "{{queue}} {{state}}"),
                one(
                    "Containers granted",
                    "ops",
                    f"sum by (queue) (rate(weft_containers_granted_total[{RATE}]))",
                    "{{queue}}",
                ),
            ),
        ),
    ),
    ("cluster", "queue"),
)

JOBS = Board(
    "jobs",
    "Weft: jobs",
    (
        (
            "Live applications",
            (
                one("Applications by state", "short", "weft_apps", "{{state}}", kind="stack"),
                one(
                    "Applications that ended",
                    "ops",
                    f"sum by (state) (rate(weft_apps_ended_total[{RATE}]))",
                    "{{state}}",
                ),
                one(
                    "Progress",
                    "percentunit",
                    "weft_app_finished_tasks / weft_app_tasks",
                    "{{name}} {{app}}",
                ),
                one("Age", "s", "weft_app_age_seconds", "{{name}} {{app}}", kind="table"),
                one("Containers held", "short", "weft_app_containers", "{{name}} {{app}}"),
                one(
                    "Containers pending", "short", "weft_app_pending_containers", "{{name}} {{app}}"
                ),
            ),
        ),
        (
            "How long things take",
            (
                quantiles("Job completion time", "weft_app_completion_seconds"),
                quantiles(
                    "Run time of tasks that succeeded",
                    "weft_task_run_seconds",
                    'outcome="SUCCEEDED"',
                ),
                quantiles(
                    "Wait for a container",
                    "weft_allocation_wait_seconds",
                    text="From an ask, or from its last grant, to a grant.",
                ),
                quantiles("Planning time", "weft_planning_seconds", by="planner"),
            ),
        ),
    ),
)

NODES = Board(
    "nodes",
    "Weft: nodes",
    (
        (
            "Nodes",
            (
                one("Nodes by state", "short", "weft_nodes", "{{state}}", kind="stack"),
                one(
                    "Longest silence",
                    "s",
                    "topk(10, weft_node_silence_seconds)",
                    "{{node}}",
                    text="Beyond the expiry a node is lost and its tasks run elsewhere.",
                ),
                one(
                    "Fullest nodes, CPU",
                    "percentunit",
                    'topk(10, weft_node_allocated{resource="cpu"}'
                    ' / weft_node_capacity{resource="cpu"})',
                    "{{node}}",
                ),
                one(
                    "Fullest nodes, memory",
                    "percentunit",
                    'topk(10, weft_node_allocated{resource="memory"}'
                    ' / weft_node_capacity{resource="memory"})',
                    "{{node}}",
                ),
                one(
                    "Most used nodes, CPU",
                    "short",
                    'topk(10, weft_node_used{resource="cpu"})',
                    "{{node}}",
                    text="Measured, or what the emulated tasks ask of the node.",
                ),
                one(
                    "Spread of allocated CPU",
                    "percentunit",
                    'stddev(weft_node_allocated{resource="cpu"}'
                    ' / weft_node_capacity{resource="cpu"})',
                    "standard deviation",
                ),
                one("Containers", "short", "topk(10, weft_node_containers)", "{{node}}"),
                one("Nodes kept for a large ask", "short", "sum(weft_node_reserved)", "reserved"),
            ),
        ),
        (
            "Node managers",
            (
                one(
                    "Tasks started",
                    "ops",
                    f"sum by (instance) (rate(weft_tasks_started_total[{RATE}]))",
                    "{{instance}}",
                ),
                one(
                    "Tasks that ended",
                    "ops",
                    f"sum by (outcome) (rate(weft_tasks_ended_total[{RATE}]))",
                    "{{outcome}}",
                    kind="stack",
                ),
                one("Tasks running", "short", "weft_tasks_running", "{{instance}}"),
                one("Nodes of a process", "short", "weft_hosted_nodes", "{{instance}}"),
            ),
        ),
    ),
    ("cluster", "node"),
)

HEALTH = Board(
    "health",
    "Weft: service health",
    (
        (
            "Resource Manager",
            (
                one("Heartbeats handled", "ops", "weft:heartbeats:rate1m", "heartbeats"),
                quantiles(
                    "Heartbeat latency",
                    "weft_handle_seconds",
                    'event="NodeHeartbeated",job="weft-rm"',
                ),
                one(
                    "Time of the core by event",
                    "percentunit",
                    f'sum by (event) (rate(weft_handle_seconds_sum{{job="weft-rm"}}[{RATE}]))',
                    "{{event}}",
                    kind="stack",
                    text="1 is one core busy.",
                ),
                quantiles(
                    "A policy's decision for a node",
                    "weft_scheduler_phase_seconds",
                    'phase="match"',
                ),
                quantiles("Write of the state store", "weft_store_write_seconds"),
                one(
                    "Opportunities declined for locality",
                    "ops",
                    f"sum(rate(weft_opportunities_declined_total[{RATE}])) or vector(0)",
                    "declined",
                ),
            ),
        ),
        (
            "Processes",
            (
                one("Up", "none", "up", "{{job}} {{instance}}"),
                quantiles("Event-loop lag", "weft_event_loop_lag_seconds", by="job"),
                quantiles("Wait in the mailbox", "weft_mailbox_wait_seconds", by="job"),
                one(
                    "gRPC calls",
                    "ops",
                    f"sum by (method, code) (rate(weft_grpc_calls_total[{RATE}]))",
                    "{{method}} {{code}}",
                ),
                quantiles(
                    "gRPC calls of clients",
                    "weft_grpc_call_seconds",
                    'method=~"weft.ResourceManagerClient/.*"',
                ),
                one(
                    "CPU of processes",
                    "percentunit",
                    f'rate(process_cpu_seconds_total{{job=~"weft-.*"}}[{RATE}])',
                    "{{job}} {{instance}}",
                ),
                one(
                    "Memory of processes",
                    "bytes",
                    'process_resident_memory_bytes{job=~"weft-.*"}',
                    "{{job}} {{instance}}",
                ),
                one("Masters", "short", "weft_masters", "{{instance}}"),
                one(
                    "Messages not delivered",
                    "ops",
                    f"sum(rate(weft_messages_undeliverable_total[{RATE}])) or vector(0)",
                    "lost",
                    text="They are sent again; many of them mean a broken connection.",
                ),
                one(
                    "Series of a scrape",
                    "short",
                    'scrape_samples_scraped{job=~"weft-.*"}',
                    "{{job}} {{instance}}",
                ),
            ),
        ),
    ),
)

BOARDS = (CLUSTER, QUEUES, JOBS, NODES, HEALTH)


def select(expr: str, labels: tuple[str, ...]) -> str:
    """Return a query with each of its series held to what is chosen; All takes those without."""

    def held(match: re.Match[str]) -> str:
        name, matchers = match[1], match[2] or ""
        parts = [matchers] if matchers else []
        for label in labels:
            families, _ = VARIABLES[label]
            if re.match(families, name) and f"{label}=" not in matchers:
                parts.append(f'{label}=~"${label}"')
        return f"{name}{{{','.join(parts)}}}"

    return _SELECTOR.sub(held, expr)


def variable(label: str) -> Any:
    """Return the SDK's builder of the choice of a label's values."""
    _, family = VARIABLES[label]
    built = board.QueryVariable(label).label(label.capitalize()).datasource(SOURCE)
    built = built.query(f"label_values({family}, {label})").refresh(
        VariableRefresh.ON_TIME_RANGE_CHANGED
    )
    built = built.current(VariableOption(selected=True, text="All", value="$__all"))
    return built.include_all(True).all_value(".*").multi(True)


def build_panel(panel: Panel, labels: tuple[str, ...]) -> Any:
    """Return the SDK's builder of one panel."""
    makers = {"number": stat.Panel, "table": table.Panel}
    built: Any = makers.get(panel.kind, timeseries.Panel)()
    built = built.title(panel.title).unit(panel.unit).datasource(SOURCE)
    built = built.span(panel.width).height(COMPACT if panel.kind == "number" else HIGH)
    if panel.text:
        built = built.description(panel.text)
    if panel.kind in ("lines", "stack"):
        legend = common_builders.VizLegendOptions().display_mode(common.LegendDisplayMode.LIST)
        built = built.legend(legend.placement(common.LegendPlacement.BOTTOM).show_legend(True))
        tooltip = common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
        built = built.tooltip(tooltip).min(0)
    if panel.kind == "stack":
        stacking = common_builders.StackingConfig().mode(common.StackingMode.NORMAL)
        built = built.stacking(stacking).fill_opacity(40)
    for position, (expr, legend_text) in enumerate(panel.queries):
        query = prometheus.Dataquery().expr(select(expr, labels)).legend_format(legend_text)
        query = query.ref_id(chr(ord("A") + position))
        if panel.kind == "table":
            query = query.instant().format(PromQueryFormat.TABLE)
        built = built.with_target(query)
    return built


def build(design: Board) -> str:
    """Return one dashboard as JSON."""
    built = board.Dashboard(design.title).uid(f"weft-{design.name}").tags(["weft"]).readonly()
    built = built.time("now-15m", "now").refresh("5s").timezone("browser")
    built = built.tooltip(DashboardCursorSync.CROSSHAIR)
    for label in design.chosen:
        built = built.with_variable(variable(label))
    number_of_panel = 1
    for title, panels in design.rows:
        built = built.with_row(board.Row(title).id(number_of_panel))
        number_of_panel += 1
        for panel in panels:
            built = built.with_panel(build_panel(panel, design.chosen).id(number_of_panel))
            number_of_panel += 1
    return json.dumps(built.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def main(arguments: list[str]) -> int:
    """Write, or with `--check` compare; exit code 1: something is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="Change nothing; 1 if stale.")
    check = parser.parse_args(arguments).check
    wanted = {f"{design.name}.json": build(design) for design in BOARDS}
    found = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.json")}
    stale = sorted(name for name in wanted | found if wanted.get(name) != found.get(name))
    if check:
        for name in stale:
            print(f"{name} is stale: run tools/make_dashboards.py", file=sys.stderr)
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        path = FOLDER / name
        if name in wanted:
            path.write_text(wanted[name], "utf-8")
        else:
            path.unlink()
        print(f"wrote {name}" if name in wanted else f"removed {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
