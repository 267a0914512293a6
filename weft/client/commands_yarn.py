"""`weft import-yarn`: a real YARN cluster's configuration into a cluster file."""

import json
import shlex
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import click

from weft.client.local import EMULATED_NODES
from weft.client.text import plural
from weft.model.cluster import cluster_from_dict
from weft.model.errors import InputError
from weft.runtime.role_settings import RmSettings
from weft.workloads.yarn_config import YarnConfig, read_yarn


@click.command(name="import-yarn")
@click.argument(
    "sources", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Cluster file to write."
)
@click.option(
    "--nodes",
    default=0,
    type=click.IntRange(0, 1_000_000),
    help="So many nodes of yarn-site.xml's size, where no file lists them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was read as JSON.")
def import_yarn(sources: tuple[Path, ...], out: Path, nodes: int, as_json: bool) -> None:
    """Turn YARN's configuration into a cluster file.

    FILEs are capacity-scheduler.xml, fair-scheduler.xml, yarn-site.xml, node lists of SLS, and
    answers of /ws/v1/cluster/nodes. What Weft has no counterpart for is named, with the reason.
    """
    found = read_yarn(sources, nodes)
    data = found.cluster()
    spec = cluster_from_dict(data, "what the files say")
    flags = _flags(found)
    _write(out, data)
    if as_json:
        told = {"out": str(out), "nodes": len(spec.nodes), "flags": flags}
        click.echo(json.dumps(told | {"cluster": data, "left_out": found.left_out}))
        return
    for name, why in found.left_out.items():
        click.echo(f"left out: {name}: {why}", err=True)
    leaves = ", ".join(path for path, _ in spec.queues.leaves())
    click.echo(f"{out}: {plural(len(spec.nodes), 'node')}, queues {leaves}")
    click.echo(
        f"simulate with: weft simulate JOBS --cluster {shlex.quote(str(out))} {flags}".rstrip()
    )


def take_yarn(conf: Path, options: dict[str, Any], folder: Path | None) -> None:
    """Put what YARN's files in a folder say into the options of `weft up`; raises InputError.

    What an option says itself counts. The cluster file is kept in `folder`, or a temporary one.
    """
    sources = sorted([*conf.glob("*.xml"), *conf.glob("*.json")])
    if not sources:
        raise InputError("--yarn-conf", f"{conf} holds neither .xml nor .json files")
    found = read_yarn(sources, options["nodes"] or EMULATED_NODES)
    for name, why in found.left_out.items():
        click.echo(f"left out: {name}: {why}", err=True)
    where = folder if folder is not None else Path(mkdtemp(prefix="weft-yarn-"))
    where.mkdir(parents=True, exist_ok=True)
    out = where / "cluster.yaml"
    _write(out, found.cluster())
    options["queues"] = str(conf)
    options["cluster"], options["pace"] = options["cluster"] or str(out), "yarn"
    if found.scheduler and options["scheduler"] == "capacity":
        options["scheduler"] = found.scheduler
    if options["scheduler"] == "yarn":
        said = tuple(f"matcher.{key}={_said(value)}" for key, value in found.matcher.items())
        options["options"] = (*said, *options["options"])
    known = set(RmSettings.model_fields)
    manager = tuple(f"{k}={_said(v)}" for k, v in found.manager.items() if k in known)
    options["rm_set"] = (*manager, *options["rm_set"])


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _flags(found: YarnConfig) -> str:
    """Return what the files say beside queues and nodes, as options of `weft simulate`."""
    words = ["--scheduler", found.scheduler] if found.scheduler else []
    if found.scheduler != "fifo":
        words += [w for k, v in found.matcher.items() for w in ("--set", f"matcher.{k}={v}")]
    for key, value in found.manager.items():
        said = str(value).lower() if isinstance(value, bool) else f"{value:g}"
        words += ["--set", f"manager.{key}={said}"]
    return shlex.join(words)


def _write(out: Path, data: dict[str, Any]) -> None:
    import yaml

    text = (
        json.dumps(data, indent=2)
        if out.suffix == ".json"
        else yaml.safe_dump(data, sort_keys=False)
    )
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(str(out), error.strerror or "cannot be written") from None


commands: list[click.Command] = [import_yarn]
