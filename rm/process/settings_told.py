"""What a Resource Manager runs with, told to clients as it would be written."""

from rm.making import ManagerParts
from rm.match.registry import matcher_parameters, matcher_row
from weft.protocol.requests import ManagerSettings, Setting
from weft.runtime.role_settings import RmSettings


def settings_told(settings: RmSettings, parts: ManagerParts) -> ManagerSettings:
    """Return each setting of the process, and each parameter of its matcher."""
    found = [
        Setting(
            name,
            _written(getattr(settings, name)),
            _written(field.default),
            field.description or "",
        )
        for name, field in type(settings).model_fields.items()
        # It is a process number, which whoever started this one gave it.
        if name != "die_with"
    ]
    row = matcher_row(parts.matcher)
    given = matcher_parameters(parts.matcher, parts.matcher_options)
    found += [
        Setting(f"matcher.{name}", _written(value), _written(known.default), known.text)
        for name, value in given.items()
        if (known := row.parameters.get(name)) is not None
    ]
    return ManagerSettings(tuple(found))


def _written(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
