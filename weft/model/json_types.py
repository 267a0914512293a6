"""Plain data: what JSON and YAML can say, and parameters that are given by name.

Whoever reads a `Table` looks at each value before it relies on it (`weft.model.reading`), so its
values have no type; this is the only place that says so. Parameters are `Options` until the
defaults of what takes them have said of which kind each is (`weft.policies.parameters`).
"""

from collections.abc import Mapping
from typing import Any

Table = Mapping[str, Any]  # an object of JSON or YAML, to be read
Json = dict[str, Any]  # one that is being made
Arguments = dict[str, Any]  # parameters once they were read: each of the kind of its default
Options = Mapping[str, object]  # parameters as they were given, often texts
