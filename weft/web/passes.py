"""Passes to the pages of one application's master, for the scripts in them.

Such a page runs in a sandbox, so what its scripts ask for (Spark's tables of executors) shows no
login and comes from no origin. Whoever opens it is sent on to the same page below `/pass/<word>/`:
the word stands for this visitor at this address, for an hour and this application's pages only.
"""

import hmac
import os
import time

from aiohttp import web

PASS_S, PASSES_MAX = 3_600.0, 10_000
WORD_LETTERS = 32
# A visitor, as `weft.web.visitors` knows him.
Who = tuple[str, str]


class Passes:
    """Words that are good, the one that ends first is the first; so many at most."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._given: dict[str, tuple[Who, str, str, float]] = {}

    def give(self, who: Who, app: str, place: str) -> str:
        """Return the word by which a visitor at an address reads on in an application's pages."""
        text = repr((who, app, place)).encode()
        word = hmac.new(self._secret, text, "sha256").hexdigest()[:WORD_LETTERS]
        now_s, given = time.monotonic(), self._given
        given.pop(word, None)
        given[word] = (who, app, place, now_s + PASS_S)
        while len(given) > PASSES_MAX or next(iter(given.values()))[-1] <= now_s:
            del given[next(iter(given))]
        return word

    def who(self, word: str, app: str, place: str) -> Who | None:
        """Return who was given a word for this application at this address; None: nobody was."""
        who, *rest, until_s = self._given.get(word, (None, "", "", 0.0))
        return who if rest == [app, place] and until_s > time.monotonic() else None


PASSES: "web.AppKey[Passes]" = web.AppKey("passes", Passes)
