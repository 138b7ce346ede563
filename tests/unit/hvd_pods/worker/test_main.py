"""What a worker's main program does before its agent starts."""

from __future__ import annotations

from pathlib import Path

from hvd_pods.worker import main


def test_a_new_container_finds_no_folder_of_an_earlier_daemon(tmp_path: Path) -> None:
    (tmp_path / "prted.hvd-worker-1.16.1000/0/2").mkdir(parents=True)
    (tmp_path / "ompi.hvd-worker-1.1000/pid.7").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    main.remove_left_folders(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
