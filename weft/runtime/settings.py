"""Settings of each role's process: flags, then the environment, then a file, then defaults.

A setting `node_expiry_s` of the Resource Manager is the flag `--node-expiry-s`, the environment's
`WEFT_RM_NODE_EXPIRY_S` and the file's (YAML) `node_expiry_s`. The files of TLS may also be named
once for all roles and commands of a host: `WEFT_TLS_CA`, `WEFT_TLS_CERT`, `WEFT_TLS_KEY`.
"""

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, TypeVar

import yaml
from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from weft.model.errors import InputError
from weft.runtime.other_process import end_with


class ProcessSettings(BaseSettings):
    """What every process of a cluster may be told."""

    model_config = SettingsConfigDict(extra="forbid")
    role: ClassVar[str] = "process"

    host: str = Field("127.0.0.1", description="Address to listen on; loopback by default.")
    insecure: bool = Field(
        False, description="Listen beyond loopback though nobody is asked who they are."
    )
    allowed_hosts: list[str] = Field(
        [],
        description="Name that HTTP requests reach this process by, beside addresses and its "
        "host's own; may be repeated. *: any.",
    )
    port: int = Field(0, ge=0, le=65535, description="Port of the gRPC service; 0: any free one.")
    metrics_port: int = Field(
        0,
        ge=-1,
        le=65535,
        description="Port of the Prometheus endpoint; 0: any free one, -1: none.",
    )
    metrics_tls: bool = Field(
        False, description="Metrics by TLS, for readers with a certificate of the authority."
    )
    epoch_s: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="Unix time, s, at which the cluster's clock is 0.",
    )
    time_scale: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="How much faster than the wall clock the cluster's clock runs.",
    )
    seed: int = Field(0, ge=0, description="Seed of every random choice of the process.")
    events: Path | None = Field(None, description="Append every fact to this file, as JSON lines.")
    ready_file: Path | None = Field(
        None, description="Write the ready line to this file as well as to stdout."
    )
    tls_ca: Path | None = Field(
        None, description="Authority (PEM) whose certificates are trusted; all three: mutual TLS."
    )
    tls_cert: Path | None = Field(None, description="This process's certificate (PEM).")
    tls_key: Path | None = Field(None, description="The certificate's private key (PEM).")
    log_json: bool = Field(False, description="Log JSON lines for machines.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Log only what is at least so important."
    )
    check: bool = Field(False, description="Check the books after every event; slow, for tests.")
    die_with: int = Field(0, ge=0, description="End when the process of this number ends; 0: none.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order: flags, environment, file."""
        shared = {
            name: value
            for name in ("tls_ca", "tls_cert", "tls_key")
            if (value := os.environ.get(f"WEFT_{name.upper()}"))
        }
        return (
            init_settings,
            env_settings,
            InitSettingsSource(settings_cls, shared),
            YamlConfigSettingsSource(settings_cls),
        )


class TapedSettings(ProcessSettings):
    """Settings of a process whose cores can be replayed."""

    tape: Path | None = Field(
        None, description="Folder: keep every event there, to be replayed by weft replay."
    )
    tape_mb_max: float = Field(
        1024.0, gt=0, description="A tape of so many MB ends, and the process goes on without."
    )


Settings = TypeVar("Settings", bound=ProcessSettings)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise one line instead of printing the whole usage, with flags of a like name."""
        known = [flag for flag in self._option_string_actions if flag.startswith("--")]
        unknown = re.findall(r"--[\w-]+", message.partition("unrecognized arguments:")[2])
        like = get_close_matches(unknown[0], known, 3) if unknown else []
        raise InputError("", f"{message} (did you mean {', '.join(like)}?)" if like else message)


def load(model: type[Settings], arguments: Sequence[str], program: str) -> Settings:
    """Read flags, environment and file; raises InputError naming the setting.

    Where they name a process to end with, it is watched from here on: a start may wait for others.
    """
    parser = _Parser(prog=program, description=model.__doc__, allow_abbrev=False)
    parser.add_argument("--config", metavar="FILE", help="YAML file with settings.")
    for name, field in model.model_fields.items():
        flag = "--" + name.replace("_", "-")
        text = f"{field.description} [{_shown(field.default)}]".replace("%", "%%")
        if field.annotation is bool:
            action: Any = argparse.BooleanOptionalAction
            parser.add_argument(flag, dest=name, action=action, default=None, help=text)
        elif field.annotation == list[str]:
            parser.add_argument(flag, dest=name, action="append", default=None, help=text)
        else:
            parser.add_argument(flag, dest=name, default=None, help=text, metavar="X")
    given = vars(parser.parse_args(list(arguments)))
    path = given.pop("config")
    flags = {name: value for name, value in given.items() if value is not None}
    settings = _made(model, flags, Path(path) if path else None)
    if settings.die_with:
        end_with(settings.die_with, _end)
    return settings


def _end() -> None:
    """End in order, or at once where this process does not serve yet."""
    print("the process that this is to end with is gone", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


def _made(model: type[Settings], flags: dict[str, Any], path: Path | None) -> Settings:
    if path is not None and not path.is_file():
        raise InputError("--config", f"no such file: {path}")
    config = SettingsConfigDict(**{**model.model_config, "yaml_file": path})
    try:
        return type(model.__name__, (model,), {"model_config": config})(**flags)  # type: ignore[no-any-return]
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        where = f"--{name.replace('_', '-')}" if name in flags else f"setting {name}"
        raise InputError(where, first["msg"].lower()) from None
    except (ValueError, TypeError, yaml.YAMLError) as error:
        # The file is broken.
        raise InputError(str(path or "environment"), str(error)) from None


def _shown(default: object) -> str:
    return "none" if default in (None, "", []) else str(default)


def describe(model: type[ProcessSettings]) -> list[tuple[str, str, str]]:
    """Return (name, default, description) of settings, for `weft up --help-all` and the docs."""
    return [
        (name, _shown(field.default), field.description or "")
        for name, field in model.model_fields.items()
    ]


def pairs(items: Sequence[str]) -> dict[str, str]:
    """Read `key=value` texts; raises InputError."""
    read: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise InputError("--set", f"expected key=value, got {item!r}")
        read[key] = value
    return read


def fail(error: Exception) -> NoReturn:
    """End the process with one clear line: 2 for bad input, 1 for a failure."""
    print(f"error: {error}", file=sys.stderr)
    raise SystemExit(2 if isinstance(error, InputError) else 1)
