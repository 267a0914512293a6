"""Plain data: what JSON and YAML can say, and parameters that are given by name.

Whoever reads a `Table` looks at each value before it relies on it (`weft.model.reading`), so its
values have no type; this is the only place that says so. Parameters are `Options` until the
defaults of what takes them have said of which kind each is (`weft.policies.parameters`).
"""

from collections.abc import Mapping
from typing import Any

# A Table is an object of JSON or YAML to be read, Json one that is being made.
Table = Mapping[str, Any]
Json = dict[str, Any]
# Options are parameters as they were given, often as texts. Once read they are Arguments, each of
# the type of its default.
Arguments = dict[str, Any]
Options = Mapping[str, object]
