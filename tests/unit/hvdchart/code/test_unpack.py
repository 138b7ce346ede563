"""The code of a run, given back."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hvdchart.code.archive import pack_code
from hvdchart.code.unpack import unpack_code
from hvdchart.errors import FileError
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command
from tests.unit.hvdchart.runs import LABELS


def config_map(path: Path, name: str = "hvd-code-1", time: str = "2026-01-01") -> dict[str, Any]:
    """The ConfigMap that the chart makes of the code at this path."""
    code = pack_code(path)
    metadata = {"name": name, "labels": LABELS, "creationTimestamp": time}
    if "archive" in code:
        return {"metadata": metadata, "binaryData": {"archive.tgz": code["archive"]}}
    return {"metadata": metadata, "data": code["files"]}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "model").mkdir(parents=True)
    (folder / "train.py").write_text("train")
    (folder / "model" / "net.py").write_text("net")
    (folder / "run.sh").write_text("run")
    (folder / "run.sh").chmod(0o755)
    return folder


def test_folder_comes_back_as_it_was(project: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder"
    assert unpack_code(config_map(project), target) == ["model/net.py", "run.sh", "train.py"]
    assert (target / "model" / "net.py").read_text() == "net"
    assert (target / "run.sh").stat().st_mode & 0o111
    assert not (target / "train.py").stat().st_mode & 0o111


def test_folder_with_files_is_refused_and_stays(project: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"project: is not empty; name a new folder"):
        unpack_code(config_map(project / "train.py"), project)
    assert (project / "train.py").read_text() == "train"


@pytest.mark.parametrize("name", ["../out.py", "inner/../../out.py"])
def test_archive_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    """Anyone who may change ConfigMaps of the namespace has written it, perhaps."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo(name))
    config_map = {"binaryData": {"archive.tgz": base64.b64encode(content.getvalue()).decode()}}
    with pytest.raises(FileError, match="cannot write the code: "):
        unpack_code(config_map, tmp_path / "inside" / "new")
    assert list(tmp_path.rglob("*.py")) == []


def test_file_in_place_of_a_folder_is_refused(project: Path) -> None:
    with pytest.raises(FileError, match=r"train\.py: cannot write the code"):
        unpack_code(config_map(project), project / "train.py")


def test_command_writes_the_newest_code(
    hvdchart: Command, fake_cluster: FakeCluster, project: Path, tmp_path: Path
) -> None:
    first = config_map(project / "train.py")
    (project / "train.py").write_text("changed")
    second = config_map(project / "train.py", "hvd-code-2", "2026-01-02")
    record = {"metadata": {"name": "hvd-run", "labels": LABELS}, "data": {"state": "Finished"}}
    fake_cluster.put("configmaps", second, first, record)
    done = hvdchart("code", "hvd", "-w", tmp_path / "out")
    assert (done.code, done.output) == (0, f"{tmp_path / 'out' / 'train.py'}\n")
    assert (tmp_path / "out" / "train.py").read_text() == "changed"


def test_run_without_code_is_an_error(
    hvdchart: Command, fake_cluster: FakeCluster, tmp_path: Path
) -> None:
    done = hvdchart("code", "hvd", "-w", tmp_path / "out")
    assert done.code == 7
    assert "no run hvd with code in namespace team" in done.errors
    assert not (tmp_path / "out").exists()
