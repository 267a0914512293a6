"""Two walls that `.importlinter` names and import-linter does not know: purity and policies.

Both are sentences, not lists of modules: who adds a module or a policy is held to them at once.
"""

import ast
import re
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

# A registry's row names a policy as "module:name" or "module".
_POLICY = re.compile(r"((?:\w+\.)+\w+)(?::\w+)?")

# An import is (the importing module, the imported one).
Import = tuple[str, str]


class PureContract(Contract):
    """What is pure imports nothing worldly of ours, and of others only what `allowed` lists.

    Everything in `roots` is pure but folders named `process`, `__main__` modules and `worldly`.
    Pure code may use the `harmless` ones of those, which look for code and for nothing else.
    """

    type_name = "pure"

    roots = fields.SetField(subfield=fields.StringField())
    worldly = fields.SetField(subfield=fields.StringField())
    harmless = fields.SetField(subfield=fields.StringField())
    allowed = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect the imports of pure modules that are not allowed."""
        # The value of a field has another type than the field.
        rules: Any = self
        own = {name.split(".")[0] for name in graph.modules if not graph.is_module_squashed(name)}
        found: list[Import] = []
        for module in sorted(graph.modules):
            root = module.split(".")[0]
            # A root package itself is its door, which loads what is asked for.
            if root not in rules.roots or root == module or self._touches_the_world(module):
                continue
            for target in sorted(graph.find_modules_directly_imported_by(module)):
                top = target.split(".")[0]
                if top not in own:
                    wrong = top not in rules.allowed
                else:
                    wrong = target not in rules.harmless and self._touches_the_world(target)
                if wrong:
                    found.append((module, target))
        return ContractCheck(kept=not found, metadata={"found": found})

    def _touches_the_world(self, module: str) -> bool:
        parts = module.split(".")
        worldly: Any = self.worldly
        above = {".".join(parts[: at + 1]) for at in range(len(parts))}
        return parts[-1] == "__main__" or "process" in parts or bool(above & worldly)

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name the imports."""
        _print(check)


class PoliciesContract(Contract):
    """A policy never imports another one of its registry, not even through a third module.

    And no module of `roots` imports a policy: the registry finds it by name. `registries` are
    modules; their policies are the modules that their rows name.
    """

    type_name = "policies"

    registries = fields.ListField(subfield=fields.StringField())
    roots = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look for a way from each policy to each other one, and for who imports one."""
        rules: Any = self
        found: list[Import] = []
        for registry in rules.registries:
            policies = sorted(policies_of(registry, graph))
            if len(policies) < 2:
                raise ValueError(f"{registry} names no policies")
            found += [
                (importer, one)
                for one in policies
                for importer in sorted(graph.find_modules_that_directly_import(one))
                if importer.split(".")[0] in rules.roots and importer not in policies
            ]
            found += [
                (one, other)
                for one in policies
                for other in policies
                if one != other and graph.chain_exists(importer=one, imported=other)
            ]
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name the policies."""
        _print(check)


def policies_of(registry: str, graph: ImportGraph) -> set[str]:
    """Return the modules that a registry's file names in its rows."""
    text = Path(f"{registry.replace('.', '/')}.py").read_text()
    named = {
        match[1]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if (match := _POLICY.fullmatch(node.value))
    }
    return named & graph.modules


def _print(check: ContractCheck) -> None:
    for module, target in check.metadata["found"]:
        output.print_error(f"{module} -> {target}")
    output.new_line()
