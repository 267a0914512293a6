"""The command that looks for stalls says what it cannot do before it starts a cluster."""

import math

import pytest

from tools import first_minute


@pytest.mark.parametrize(
    ("words", "said"),
    [(["nosuch"], "no preset 'nosuch'"), (["fifo", "--seconds", "0"], "more than 0")],
)
def test_what_cannot_be_run_is_told_in_a_line(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["first_minute", *words])
    with pytest.raises(SystemExit) as told:
        first_minute.main()
    assert told.value.code == 2
    assert said in capsys.readouterr().err


def test_without_a_heartbeat_there_is_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_minute, "_beats", lambda cluster: (1.0, 20.0))
    assert math.isnan(first_minute._load(None, None, [], 0.0))  # type: ignore[arg-type]


def test_a_late_first_or_last_scrape_does_not_move_the_mean_interval() -> None:
    phases = [number / first_minute.NODES for number in range(first_minute.NODES)]

    def count(time_s: float) -> float:
        """Return how many heartbeats of one every 1.002 s there were."""
        return sum(math.floor(time_s / 1.002 + phase) for phase in phases)

    heard = [(time_s, count(time_s)) for time_s in (1.03 * turn for turn in range(60))]
    heard[0] = (heard[0][0] + 0.06, heard[0][1])
    assert first_minute._interval(heard) == pytest.approx(1.002, abs=4e-4)
