"""Facts for people: applications and containers by YARN's ids, stages by name."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from weft.client.api import Client
from weft.client.text import number, safe
from weft.model.errors import WeftError
from weft.model.ids import (
    AppId,
    app_of_attempt,
    app_of_container,
    format_app,
    format_attempt,
    format_container,
)

# Words stand at the end of a line.
_WORD_KEYS = ("diagnostics", "text", "message")


class Named:
    """Names what a fact numbers; `apps` are the wanted applications, none: every fact."""

    def __init__(self, client: Client, apps: frozenset[AppId] = frozenset()) -> None:
        self._client = client
        self._apps = apps
        metrics = client.metrics()
        self._cluster_ts = metrics.cluster_ts
        self._resources = tuple(metrics.capacity)
        self._stages: dict[AppId, tuple[str, ...]] = {}
        scale = client.manager().time_scale
        # It is a moment on both clocks, where the cluster's is known.
        self._now = (metrics.now_s, datetime.now().astimezone(), scale) if scale > 0 else None

    def wanted(self, event: Mapping[str, Any]) -> bool:
        """Return whether a fact is about one of the wanted applications."""
        return not self._apps or app_of(event) in self._apps

    def data(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fact with names beside its numbers, as plain data."""
        named = dict(event)
        app = app_of(event)
        if app:
            named["application_id"] = format_app(self._cluster_ts, app)
        if "attempt" in event and "container" not in event:
            named["attempt_id"] = format_attempt(self._cluster_ts, event["attempt"])
        if "container" in event:
            named["container_id"] = format_container(self._cluster_ts, event["container"])
        stage = event.get("stage", -1)
        if isinstance(stage, int) and app:
            names = self._names(app) if stage >= 0 else ()
            if 0 <= stage < len(names):
                named["stage_name"] = names[stage]
        return named

    def line(self, event: Mapping[str, Any]) -> str:
        """Return the fact as one line."""
        data = self.data(event)
        at_s = float(data.get("now_s", 0.0))
        words = [f"{at_s:10.3f}", f"{data.get('fact', ''):<14}"]
        if self._now is not None:
            now_s, wall, scale = self._now
            words.insert(0, f"{wall + timedelta(seconds=(at_s - now_s) / scale):%H:%M:%S}")
        ids = [data[key] for key in ("container_id", "attempt_id", "application_id") if key in data]
        if ids:
            words.append(ids[0])
        if "stage_name" in data:
            task = data.get("task", -1)
            words.append(data["stage_name"] + (f"[{task}]" if task >= 0 else ""))
            if "task" in data:
                words.append(f"attempt={data['attempt']}")
        elif data.get("stage", 0) == -1:
            words.append("(master)")
        hidden = {
            "fact",
            "now_s",
            "app",
            "container",
            "stage",
            "task",
            "attempt",
            "application_id",
            "attempt_id",
            "container_id",
            "stage_name",
            "ask",
            *_WORD_KEYS,
        }
        for key, value in data.items():
            if key not in hidden and is_told(key, value):
                words.append(f"{key}={self._value(key, value)}")
        words += [f"{key}={data[key]}" for key in _WORD_KEYS if data.get(key)]
        return " ".join(safe(word) for word in words).rstrip()

    def _value(self, key: str, value: Any) -> str:
        if key in ("demand", "capacity") and isinstance(value, list):
            pairs = zip(self._resources, value, strict=False)
            return ",".join(f"{name}:{number(amount)}" for name, amount in pairs if amount)
        if isinstance(value, list) and all(isinstance(v, list) and len(v) == 2 for v in value):
            return ",".join(f"{name}:{_short(v)}" for name, v in value)
        return _short(value)

    def _names(self, app: AppId) -> tuple[str, ...]:
        known = self._stages.get(app)
        if known is None:
            try:
                job = self._client.job(app)
                known = tuple(stage.name for stage in job.stages)
            except WeftError:
                # The application was forgotten meanwhile.
                known = ()
            self._stages[app] = known
        return known


def is_told(key: str, value: object) -> bool:
    """Return whether a fact's field says anything: a time that is not known is 0."""
    return value not in ("", [], None) and not (key == "run_s" and value == 0)


def app_of(event: Mapping[str, Any]) -> AppId:
    """Return the application that a fact is about; 0: none."""
    if "app" in event:
        return int(event["app"])
    if "container" in event:
        return app_of_container(int(event["container"]))
    if "attempt" in event:
        return app_of_attempt(int(event["attempt"]))
    return 0


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
