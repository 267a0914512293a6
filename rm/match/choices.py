"""A decision taken pick by pick: for policies that are asked "which of these next?".

    choices = Choices(view, node, now)
    while choices.open.any():
        choices.pick(policy(choices.features()))
    return choices.match()

Every rule that all matchers keep (fit, labels, black lists, reservations, gangs, limits and
guarantees of queues and users) is kept here, so a policy cannot break one.
"""

import numpy as np

from rm.ledger.columns import Bools
from rm.ledger.view import View
from rm.match.candidates import candidates, limits_of, mean_remaining, placements
from rm.match.choice_kernels import (
    FEATURES,
    Applications,
    Mask,
    Shown,
    describe_choices,
    may_pick,
    pick,
    show_open,
)
from rm.match.protocol import Match
from rm.match.score_kernels import Picks
from weft.model.dag import Floats, Ints
from weft.policies.compiled import steady

_may_pick, _pick, _describe = steady(may_pick), steady(pick), steady(describe_choices)
_show = steady(show_open)


class Choices:
    """The candidates of one node, by (application, ask) in the order of submission, shape (k,)."""

    def __init__(self, view: View, node: int, now: float) -> None:
        self._view = view
        self._now = now
        here = candidates(view, node)
        # These are copies, to be kept.
        self.found = found = here.part(np.argsort(here.rank, kind="stable"))
        self._limits = limits_of(view, keeps=True)
        self._value: Floats = np.empty(len(found.rows))
        self._picked: list[int] = []
        self.count = _may_pick.code(found, self._limits, self._value) if len(found.rows) else 0

    def __len__(self) -> int:
        return len(self.found.rows)

    @property
    def open(self) -> Bools:
        """Whether each candidate may be picked now, shape (k,)."""
        opened: Bools = self._value > 0.0
        return opened

    @property
    def rows(self) -> Ints:
        """The row of each candidate's ask in `view.rows`, shape (k,)."""
        return self.found.rows

    def features(self) -> Floats:
        """Return what each candidate looks like, shape (k, len(FEATURES)); 0 where not `open`."""
        view, out = self._view, np.empty((len(self), len(FEATURES)))
        apps = view.apps
        known = Applications(
            apps.remaining,
            apps.path,
            apps.held,
            view.total,
            view.rows.since_s,
            mean_remaining(view),
            self._now,
        )
        _describe.code(self.found, self._limits, known, self._value, out)
        return out

    def shown(self, most: int, largest: float) -> tuple[Shown, Mask, Ints]:
        """Return the first `most` candidates that may be picked, as arrays of fixed shapes.

        These are their features, shape (most, len(FEATURES)), cut off at `largest`; a 1 for each
        place that is taken; and their numbers.
        """
        out, mask = np.zeros((most, len(FEATURES)), np.float32), np.zeros(most, np.int8)
        numbers = np.zeros(most, np.int64)
        _show.code(self.features(), self._value, largest, out, mask, numbers)
        return out, mask, numbers

    def pick(self, chosen: int, copies: int = 1) -> int:
        """Take containers of a candidate, at most `copies`; return how many could be taken.

        Raises IndexError for a number that no candidate has.
        """
        if not 0 <= chosen < len(self):
            raise IndexError(f"no candidate {chosen}: there are {len(self)}")
        taken: int = _pick.code(self.found, self._limits, chosen, copies, self._value)
        self._picked.extend([chosen] * taken)
        self.count = int(np.count_nonzero(self._value > 0.0))
        return taken

    def match(self) -> Match:
        """Return what was picked, in that order."""
        picked = np.array(self._picked, np.int64)
        return Match(placements(self.found.rows, Picks(picked, np.empty((len(picked), 0))), ()))
