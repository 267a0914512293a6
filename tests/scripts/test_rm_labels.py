"""Labels: what only asks name uses nothing up, and nodes may change theirs for ever."""

from rm.settings import ManagerSettings
from rm.state.books import LABELS_MAX
from testkit.builders import ask, job, sent, stage
from testkit.manager import Rig
from weft.model.ids import attempt_id
from weft.protocol.messages import NodeAccepted, NodeAnswered, NodeUnregistered

NO_MASTER = ManagerSettings(master_demand={"vcores": 0.0})


def test_asks_for_unknown_labels_wait_and_use_none_up() -> None:
    """Jobs that come before any node may name any label: more of them than there are bits."""
    rig = Rig("capacity", NO_MASTER)
    apps = [rig.submit(job(f"j{i}", stage(label=f"team{i}"))) for i in range(LABELS_MAX + 8)]
    rig.add_node("n1", vcores=400.0)
    masters = []
    for number, app in enumerate(apps):
        rig.beat()
        masters.append(rig.register(attempt_id(app, 1)))
        rig.allocate(masters[-1], ask(label=f"team{number}"))
    rig.add_node("n2", labels=("gpu", "team65"))
    assert sent(rig.effects, NodeAccepted)
    rig.beat("n2")
    rig.allocate(masters[65])
    assert [c.node_id for c in masters[65].containers.values()] == ["n2"]
    rig.allocate(masters[64])
    assert not masters[64].containers


def test_labels_that_no_node_has_any_more_make_way() -> None:
    rig = Rig("capacity", NO_MASTER)
    rig.add_node("plain")
    waiting = rig.start(job("j", stage(tasks=9)))
    rig.allocate(waiting, ask(1, 1, label="v0"), ask(2, 1, label=f"v{3 * LABELS_MAX - 1}"))
    for round_ in range(3 * LABELS_MAX):
        rig.add_node("n1", labels=(f"v{round_}",), boot=round_ + 1)
        assert sent(rig.effects, NodeAccepted), f"label {round_} was refused"
        if round_ < 3 * LABELS_MAX - 1:
            rig.tell(NodeUnregistered("n1"))
    rig.beat("n1")
    rig.allocate(waiting)
    assert [c.ask_id for c in waiting.containers.values()] == [2], "not the ask for the first one"


def test_too_many_labels_at_once_are_refused_with_the_reason() -> None:
    rig = Rig("capacity", NO_MASTER)
    rig.add_node("n1", labels=tuple(f"a{i}" for i in range(LABELS_MAX)))
    assert sent(rig.effects, NodeAccepted)
    rig.add_node("n2", labels=("one_more",))
    (answer,) = sent(rig.effects, NodeAnswered)
    assert "at most 62 labels" in answer.shutdown
    rig.add_node("n3", labels=("a5",))
    assert sent(rig.effects, NodeAccepted)
