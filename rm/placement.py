"""Which queue an application goes to: the one place where that is decided.

After YARN's CSMappingPlacementRule and, where the rules are `fair`, the Fair Scheduler's placement
rules. The queue may not be there yet: `rm.dynamic_queues` makes it.
"""

from rm.dynamic_queues import creatable
from rm.ledger.queues import QueueTree
from weft.model.errors import InputError
from weft.model.job import Job
from weft.model.placement import DEFAULT, REJECT, PlacementRules, Rule

# YARN's name for a queue that nobody named.
UNNAMED = "default"
_SECONDARY, _EXISTING = "%secondary_group", "%existing_group"


def queue_of(tree: QueueTree, job: Job) -> str:
    """Return the path of the leaf queue of a submission; raises InputError where it is refused."""
    terms = tree.root.placement
    if terms is not None:
        placed = None
        if terms.fair:
            placed = _Fair(tree, terms, job).place()
        elif terms.overrides or job.queue == UNNAMED:
            placed = _Mapped(tree, terms, job).place()
        if placed is not None:
            if tree.slot_of(placed) >= 0:
                tree.leaf(placed)
            return placed
    path = job.queue if job.queue.startswith("root.") else f"root.{job.queue}"
    if "." in job.queue and tree.slot_of(path) < 0 and creatable(tree, path):
        return path
    return tree.paths[tree.leaf(job.queue)]


class _Rules:
    """The rules as they are for one submission."""

    def __init__(self, tree: QueueTree, terms: PlacementRules, job: Job) -> None:
        self.tree = tree
        self.rules = terms.rules
        self.user = job.user
        self.groups = terms.groups.get(job.user, ())
        self.clean = tuple(map(_clean, self.groups))
        self.values = {
            "%user": _clean(job.user),
            "%specified": "" if job.queue == UNNAMED else job.queue,
            "%application": job.name,
            "%default": "root.default",
        }
        # Of who is in no group the word stays as it is, as in YARN.
        if self.clean:
            self.values["%primary_group"] = self.clean[0]

    def concerns(self, rule: Rule) -> bool:
        """Return whether a rule is for this submission."""
        if rule.user and self._filled(rule.user) != self.user:
            return False
        if rule.application and self._filled(rule.application) != self.values["%application"]:
            return False
        return not rule.group or self._filled(rule.group) in self.groups

    def path(self, pattern: str) -> str:
        """Return a path with its variables in place; one without a value leaves an empty part."""
        parts = pattern.split(".")
        for at, part in enumerate(parts):
            if part in (_SECONDARY, _EXISTING) and self.clean:
                above = ".".join(parts[:at])
                groups = self.clean if part == _EXISTING else self.clean[1:]
                parts[at] = next((name for name in groups if self.is_there(above, name)), "")
            else:
                parts[at] = self.values.get(part, part)
        return ".".join(parts)

    def is_there(self, above: str, name: str) -> bool:
        """Return whether there is a queue of a name below another."""
        return self.tree.slot_of(f"{above}.{name}" if above else self.tree.named(name)) >= 0

    def _filled(self, text: str) -> str:
        for name in sorted(self.values, key=len, reverse=True):
            text = text.replace(name, self.values[name])
        return text


class _Mapped(_Rules):
    """CapacityScheduler's mapping rules."""

    def place(self) -> str | None:
        """Return the path of the queue, None where no rule says one."""
        for rule in filter(self.concerns, self.rules):
            if rule.then == DEFAULT:
                self.values["%default"] = self._filled(rule.queue)
                continue
            found, otherwise = None, rule.otherwise
            if rule.then == REJECT:
                otherwise = REJECT
            else:
                found = self._checked(self.path(rule.queue), create=rule.create)
            if found is None and otherwise == DEFAULT:
                found, otherwise = self._checked(self.values["%default"], create=False), REJECT
            if found is not None:
                return found
            if otherwise == REJECT:
                raise InputError("queue", "a placement rule rejects the application")
        return None

    def _checked(self, path: str, *, create: bool) -> str | None:
        """Return a path from the root on, if the leaf queue is there or may be made."""
        first, dot, rest = path.partition(".")
        whole = self.tree.named(first)
        if not whole or not all(path.split(".")):
            return None
        whole += dot + rest
        slot = self.tree.slot_of(whole)
        if slot >= 0:
            return whole if self.tree.is_leaf[slot] else None
        return whole if create and creatable(self.tree, whole) else None


class _Fair(_Rules):
    """FairScheduler's placement rules: where none says a queue, the application is rejected."""

    def place(self) -> str | None:
        """Return the path of the queue."""
        for rule in self.rules:
            if rule.then == REJECT:
                break
            found = self._try(rule)
            if found is not None:
                return found
        raise InputError("queue", "the placement rules reject the application")

    def _try(self, rule: Rule) -> str | None:
        if "%primary_group" in rule.queue and not self.groups:
            raise InputError("queue", f"user {self.user!r} is in no group that is known")
        said = self.values["%specified"]
        if "%specified" in rule.queue and said != said.strip(" ."):
            raise InputError("queue", f"{said!r} is no name of a queue")
        path = self.path(rule.queue)
        if not all(path.split(".")):
            return None
        path = path if path.startswith("root.") else f"root.{path}"
        upper, _, name = rule.queue.rpartition(".")
        if upper not in ("", "root") and name.startswith("%"):
            above = path.rpartition(".")[0]
            slot = self.tree.slot_of(above)
            leaf = slot >= 0 and bool(self.tree.is_leaf[slot])
            if leaf or not (rule.create_parent or self._configured(above)):
                return None
        return path if rule.create or self._configured(path) else None

    def is_there(self, above: str, name: str) -> bool:
        """Return whether somebody said that there is a queue of a name below another."""
        return self._configured(f"{above}.{name}")

    def _configured(self, path: str) -> bool:
        slot = self.tree.slot_of(path)
        return slot >= 0 and self.tree.specs[slot][1].expires_s < 0


def _clean(name: str) -> str:
    """Return a user's or group's name as a queue has it."""
    return name.strip().replace(".", "_dot_")
