"""Draw docs/settings.md from the settings of every process and policy; `--check` fails on drift."""

import inspect
import io
import json
import sys
import tokenize
from dataclasses import MISSING, Field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from am.ask.registry import ASKERS, asker_parameters
from am.plan.registry import PLANNERS, planner_parameters
from am.settings import MasterSettings
from nm.settings import NodeSettings
from rm.match.registry import CARBON, MATCHERS, Parameter
from rm.settings import ManagerSettings
from sim.settings import ELSEWHERE
from tools import drawn
from weft.runtime.role_settings import (
    AmSettings,
    ConnectedSettings,
    HadoopSettings,
    NmSettings,
    RmSettings,
    RouterSettings,
    ServicesSettings,
    StoreSettings,
    WebSettings,
)
from weft.runtime.settings import ProcessSettings, TapedSettings

PROCESSES: dict[str, tuple[str, type[ProcessSettings]]] = {
    "Resource Manager": ("rm", RmSettings),
    "Node Manager": ("nm", NmSettings),
    "Application Masters' host": ("am", AmSettings),
    "Router of members": ("weft.router", RouterSettings),
    "Pages and REST": ("weft.web", WebSettings),
    "YARN's wire": ("weft.yarn", HadoopSettings),
    "Services of a host's nodes": ("weft.yarn.services", ServicesSettings),
}
# What several processes have is told once.
SHARED: dict[str, type[ProcessSettings]] = {
    "Every process": ProcessSettings,
    "Processes with a tape": TapedSettings,
    "Processes that ask the Resource Manager": ConnectedSettings,
    "Processes that may share an etcd": StoreSettings,
}
CORES: dict[str, tuple[type[Any], type[ProcessSettings]]] = {
    "manager": (ManagerSettings, RmSettings),
    "master": (MasterSettings, AmSettings),
    "node": (NodeSettings, NmSettings),
}
HEAD = """# Settings

Drawn from the code by `make diagrams`; `make check` fails when it says something else.

A process takes a flag, `--resend-after-s=2`, or a variable, `WEFT_RM_RESEND_AFTER_S=2`; the flag
wins. `weft up`, `weft demo` and `weft simulate` take the settings of policies and cores as
`--set NAME=VALUE`.
"""


def draw() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for title, cls in SHARED.items():
        rows = [_flag(name, field) for name, field in _own(cls).items()]
        parts.append(f"## {title}\n\n{_table(rows)}")
    for title, (module, settings) in PROCESSES.items():
        prefix = settings.model_config.get("env_prefix", "")
        kinds = ", ".join(
            f"[{name}](#{name.lower().replace(' ', '-')})"
            for name, cls in SHARED.items()
            if issubclass(settings, cls)
        )
        rows = [_flag(name, field) for name, field in _own(settings).items()]
        parts.append(
            f"## {title}\n\n`python -m {module}`, variables `{prefix}...`; besides: {kinds}\n\n"
            + _table(rows)
        )
    parts.append(
        "## Cores\n\nThe rules of the roles themselves, for `--set` of `weft simulate`; the "
        "processes above have flags for those that a cluster's owner sets.\n"
    )
    for role, (core, process) in CORES.items():
        said = _comments(core)
        known = {
            name: _shown(field.get_default(call_default_factory=True))
            for name, field in process.model_fields.items()
        }
        each_of = [each for each in fields(core) if each.name not in ELSEWHERE[role]]
        flags = [one.name for one in each_of if known.get(one.name) == _default(one)]
        rows = [
            (f"`{role}.{one.name}`", _default(one), said.get(one.name, ""))
            for one in each_of
            if one.name not in flags
        ]
        also = ", ".join(f"`{role}.{name}`" for name in flags)
        parts.append(f"{_table(rows)}\nAs the flags of the process above: {also}.\n")
    parts.append("## Matchers\n\n`--set matcher.NAME=VALUE`\n")
    for name, row in MATCHERS.items():
        rows = [
            (f"`{key}`", _shown(one.default), _told(one)) for key, one in row.parameters.items()
        ]
        parts.append(f"### {name}\n\n{row.text}\n" + (f"\n{_table(rows)}" if rows else ""))
    rows = [(f"`{key}`", _shown(one.default), _told(one)) for key, one in CARBON.items()]
    text = "What every matcher takes besides, to heed the carbon intensity (`docs/matching.md`)."
    parts.append(f"### Around any matcher\n\n{text}\n\n{_table(rows)}")
    for word, title, names, read in (
        ("planner", "Planners", PLANNERS, planner_parameters),
        ("asker", "Askers", ASKERS, asker_parameters),
    ):
        rows = [
            (f"`{name}`", f"`{key}`", _shown(value))
            for name in names
            for key, value in _parameters(read, name).items()
            # A planner that goes on from another one's plan has its parameters, too.
            if _parameters(read, name.removesuffix("_plus")).get(key) != value
            or not name.endswith("_plus")
        ]
        parts.append(
            f"## {title}\n\n`--set {word}.NAME=VALUE`\n\n" + _table(rows, (word, "name", "default"))
        )
    return "\n".join(parts)


def _own(cls: type[ProcessSettings]) -> dict[str, Any]:
    """Return the fields of a class that none it is made of has with the same text and default."""
    above: dict[str, Any] = {}
    for base in cls.__mro__[1:]:
        above |= getattr(base, "model_fields", {})
    return {
        name: field
        for name, field in cls.model_fields.items()
        if name not in above or _flag(name, field) != _flag(name, above[name])
    }


def _flag(name: str, field: Any) -> tuple[str, str, str]:
    return (
        f"`--{name.replace('_', '-')}`",
        _shown(field.get_default(call_default_factory=True)),
        field.description or "",
    )


def _parameters(read: Any, name: str) -> dict[str, Any]:
    found = read(name, {})
    return dict(found) if isinstance(found, dict) else {}


def _table(
    rows: list[tuple[str, str, str]], head: tuple[str, str, str] = ("name", "default", "what it is")
) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---|---|---|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _told(one: Parameter) -> str:
    return one.text + (f": {', '.join(one.choices)}" if one.choices else "")


def _default(each: "Field[Any]") -> str:
    if each.default is not MISSING:
        return _shown(each.default)
    return _shown(each.default_factory()) if each.default_factory is not MISSING else ""


def _shown(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    if value is None or value == "" or type(value).__name__ == "PydanticUndefinedType":
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float | str | Path):
        return f"{value:g}" if isinstance(value, float) else f"`{value}`"
    if isinstance(value, dict | list | tuple):
        return f"`{json.dumps(value)}`" if value else ""
    inner = {each.name: getattr(value, each.name) for each in fields(value)}
    return ", ".join(f"{name} {_shown(one)}" for name, one in inner.items())


def _comments(cls: type) -> dict[str, str]:
    """Return the comment above or beside each field of a class."""
    found: dict[str, str] = {}
    name, above = "", ""
    tokens = tokenize.generate_tokens(io.StringIO(inspect.getsource(cls)).readline)
    names = {each.name for each in fields(cls)}
    for token in tokens:
        if token.type == tokenize.NAME and token.start[1] == 4 and token.string in names:
            name, found[token.string], above = token.string, above, ""
        elif token.type == tokenize.COMMENT and "fmt:" not in token.string:
            text = token.string.lstrip("# ")
            if token.start[1] == 4:
                above = f"{above} {text}".strip()
            elif name:
                found[name] = f"{found[name]} {text}".strip()
    return found


if __name__ == "__main__":
    sys.exit(drawn.main("settings.md", draw(), sys.argv[1:]))
