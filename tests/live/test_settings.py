"""Settings come from flags, environment and file, and every mistake is named."""

from pathlib import Path

import pytest

from weft.model.errors import InputError
from weft.runtime.role_settings import AmSettings, NmSettings, RmSettings
from weft.runtime.settings import describe, load, pairs


def test_flags_win_over_the_environment_and_it_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rm.yaml"
    file.write_text("port: 1\nnode_expiry_s: 2\npace: yarn\n")
    monkeypatch.setenv("WEFT_RM_NODE_EXPIRY_S", "3")
    monkeypatch.setenv("WEFT_RM_PORT", "4")
    settings = load(RmSettings, [f"--config={file}", "--port=5"], "rm")
    assert (settings.port, settings.node_expiry_s, settings.pace) == (5, 3.0, "yarn")
    assert settings.heartbeat_s == 1.0


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["--port=70000"], "--port"),
        (["--port=x"], "--port"),
        (["--time-scale=0"], "--time-scale"),
        (["--time-scale=nan"], "--time-scale"),
        (["--epoch-s=inf"], "--epoch-s"),
        (["--pace=fast"], "--pace"),
        (["--config=/nowhere.yaml"], "--config"),
        (["--unknown"], "unrecognized"),
        (["--por=1"], "unrecognized arguments: --por=1 (did you mean --port"),
    ],
)
def test_a_wrong_flag_is_named_in_one_line(arguments: list[str], place: str) -> None:
    with pytest.raises(InputError) as error:
        load(RmSettings, arguments, "rm")
    assert place in str(error.value)
    assert "\n" not in str(error.value)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rm.yaml"
    file.write_text("port: [1\n")
    with pytest.raises(InputError, match=r"rm\.yaml"):
        load(RmSettings, [f"--config={file}"], "rm")
    file.write_text("speed: 1\n")
    with pytest.raises(InputError, match="speed"):
        load(RmSettings, [f"--config={file}"], "rm")


@pytest.mark.parametrize("model", [RmSettings, NmSettings, AmSettings])
def test_every_setting_is_documented(model: type[RmSettings]) -> None:
    for name, _, text in describe(model):
        assert text.endswith("."), name


def test_pairs_are_read() -> None:
    assert pairs(["matcher.eta=0.5", "a=b=c"]) == {"matcher.eta": "0.5", "a": "b=c"}
    with pytest.raises(InputError, match="key=value"):
        pairs(["eta"])
