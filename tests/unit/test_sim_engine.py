"""Virtual time: what is put at an instant is due in the order of (time, serial)."""

from typing import Any

import pytest

from sim.engine import Actor, Engine


class Silent:
    """A core that answers nothing."""

    def handle(self, event: Any, now: float) -> list[Any]:
        return []


@pytest.mark.parametrize("now", [0.0, 2.5])
def test_what_is_put_at_an_instant_comes_before_what_is_ready_even_with_nothing_to_come(
    now: float,
) -> None:
    engine, actor = Engine(), Actor("one", Silent())
    engine.now = now
    heard: list[object] = []

    def deliver(actor: Actor, event: object, now: float) -> None:
        heard.append(event)
        if event == "first":
            engine.soon(actor, "later")
            engine.at(now, actor, "sooner")
            engine.at(now + 0.01, actor, "last")

    engine.soon(actor, "first")
    engine.run(deliver)
    assert heard == ["first", "sooner", "later", "last"]
