"""The askers by name: one file and one row here, or another package's (`weft.policies.plugins`)."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Protocol, cast, runtime_checkable

import numpy as np

from am.ask.view import HoldView, HoldWish, JobView, Wish
from weft.model.errors import InputError
from weft.model.json_types import Arguments, Options
from weft.policies import plugins
from weft.policies.parameters import known_parameters, read_parameters


class Asker(Protocol):
    """Decides how many containers a job asks for now, and of which kind.

    One asker serves one job. It is called when something changed: at each heartbeat in YARN's pace,
    at once in prompt pace. It sees the job read-only and answers with a `Wish`; the master's core
    turns that into cumulative asks, so an asker never counts grants. With a `container` attribute
    (as in `HoldAsker`) every task gets a container of at least that capacity.

    `follows_share`: call it also when the share, the remaining DAG or an estimate changed, not
    only when tasks became ready.
    """

    follows_share: bool

    def ask(self, view: JobView, now: float, rng: np.random.Generator) -> Wish:
        """Return the wanted number of containers of each kind for the groups that it names."""


@runtime_checkable
class HoldAsker(Protocol):
    """Decides about reusable containers: how many to hold, which tasks go where, what goes back.

    It is called after every event that may matter (a grant, a task's end, tasks that became ready)
    and when it asked to be woken. Semi-clairvoyance is the view's type: `HoldView` names the
    stages whose tasks may start and what the job holds. A holding asker's job has no plan.

    `container` is the capacity of one container: named amounts, a part of the smallest machine, or
    what so many of the job's tasks need at most (`am.sizes.UNIFORM`). A stage whose tasks need more
    gets larger containers. `over_estimate`: see `am.demands`.
    """

    container: Mapping[str, float] | float | str
    over_estimate: float

    def hold(self, view: HoldView, now: float, rng: np.random.Generator) -> HoldWish:
        """Return the wanted number of containers, tasks to start, containers to give back."""


# name -> "module:class", imported on first use so that a command starts fast
ASKERS: dict[str, str] = {
    "all_ready": "am.ask.all_ready:AllReady",
    "carbyne": "am.ask.carbyne:Carbyne",
    "cobra": "am.ask.cobra:Cobra",
    "static": "am.ask.static:Static",
    "dynamic": "am.ask.dynamic:Dynamic",
    "disposable": "am.ask.disposable:Disposable",
    "reuse": "am.ask.reuse:Reuse",
}


def asker(name: str, options: Options | None = None) -> Asker | HoldAsker:
    """Build an asker; raises InputError for an unknown name or option."""
    factory = _factory(name)
    if name in ASKERS:
        return cast(
            Asker | HoldAsker, factory(**read_parameters(factory, options or {}, "asker", name))
        )
    made = plugins.Contained(
        plugins.ASKERS, name, plugins.build(plugins.ASKERS, name, options or {})
    )
    if not (hasattr(made, "ask") or hasattr(made, "hold")):
        raise InputError(f"asker {name!r}", "is no asker: it has neither ask nor hold")
    return cast(Asker | HoldAsker, made)


def asker_parameters(name: str, options: Options) -> Arguments:
    """Return every parameter of an asker with its value; raises InputError for an unknown one."""
    asker(name, options)
    factory = _factory(name)
    return known_parameters(factory) | read_parameters(factory, options, "asker", name)


def _factory(name: str) -> Callable[..., object]:
    if name in ASKERS:
        module, kind = ASKERS[name].split(":")
        own: Callable[..., object] = getattr(import_module(module), kind)
        return own
    if not plugins.is_outside(plugins.ASKERS, name):
        raise plugins.unknown(plugins.ASKERS, name, ASKERS)
    found = plugins.find(plugins.ASKERS, name)
    if not callable(found):
        raise InputError(f"asker {name!r}", f"is no class, but {type(found).__name__}")
    return cast(Callable[..., object], found)
