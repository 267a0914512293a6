"""What goes and what stays of an application's files on a host."""

from pathlib import Path

from nm.process.folders import clean, clean_all


def container(app: Path, name: str) -> Path:
    folder = app / name
    (folder / "tmp" / "deep").mkdir(parents=True)
    for file in ("stdout", "stderr", "jobmanager.log", "container_tokens", "launch_container.sh"):
        (folder / file).write_text(file)
    (folder / "link.log").symlink_to(app / "filecache")
    return folder


def test_all_but_logs_goes(tmp_path: Path) -> None:
    app = tmp_path / "application_1_0001"
    folders = [container(app, f"container_1_0001_01_{n:06d}") for n in (1, 2)]
    for kept in ("filecache", "local"):
        (app / kept / "inner").mkdir(parents=True)
    clean(app)
    assert {p.name for p in app.iterdir()} == {f.name for f in folders}
    for folder in folders:
        assert {p.name for p in folder.iterdir()} == {"stdout", "stderr", "jobmanager.log"}
    clean(app)
    clean(tmp_path / "application_1_0002")


def test_files_of_wefts_own_tasks_are_left_alone(tmp_path: Path) -> None:
    own, foreign = tmp_path / "application_1_0001", tmp_path / "application_1_0002"
    folder = container(own, "container_1_0001_01_000001")
    container(foreign, "container_1_0002_01_000001")
    (foreign / "filecache").mkdir()
    clean_all(tmp_path)
    assert (folder / "container_tokens").exists()
    assert not (foreign / "filecache").exists()
