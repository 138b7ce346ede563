"""A script or a folder as the chart's value code, its versions, and back."""

from __future__ import annotations

import base64
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hvdchart.chart_files import read_data
from hvdchart.code.archive import pack_code
from hvdchart.code.changes import CodeChanges
from hvdchart.code.unpack import unpack_code
from hvdchart.errors import FileError
from hvdchart.spec.yaml_tree import Plain
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command
from tests.unit.hvdchart.runs import LABELS


def write(folder: Path, **files: str) -> Path:
    """Write files whose names have `__` for a slash and `_dot_` for a dot."""
    for key, text in files.items():
        path = folder / key.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def unpacked(folder: Path) -> dict[str, bytes]:
    """Return what a worker would unpack."""
    archive = pack_code(folder)["archive"]
    assert isinstance(archive, str)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive))) as content:
        files = {member.name: content.extractfile(member) for member in content}
        return {name: file.read() for name, file in files.items() if file}


def test_script_is_a_file_of_the_values(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('ä')\n", "utf-8")
    assert pack_code(script) == {"files": {"train.py": "print('ä')\n"}}


def test_a_line_that_is_no_pattern_is_refused(tmp_path: Path) -> None:
    write(tmp_path, train_dot_py="", model___dot_gitignore="*.h5\n\n\\\n")
    with pytest.raises(FileError, match=r"/model/\.gitignore:3: '\\\\' is not a pattern"):
        unpacked(tmp_path)


def test_ignored_files_are_left_out_as_git_does(tmp_path: Path) -> None:
    write(
        tmp_path,
        _dot_gitignore="*.log\n/data/\n!keep.log\n",
        _dot_hvdignore="notes/\n",
        a_dot_log="", keep_dot_log="kept", train_dot_py="",
        data__set_dot_bin="", model__data__inner_dot_py="", model__notes="a file, and no folder",
        notes__x_dot_md="", _dot_git__config="", __pycache____x_dot_pyc="",
        model___dot_gitignore="*.h5\n!*.log\n", model__w_dot_h5="", model__b_dot_log="kept",
    )  # fmt: skip
    left = {name for name in unpacked(tmp_path) if "ignore" not in name}
    assert left == {"keep.log", "model/b.log", "model/data/inner.py", "model/notes", "train.py"}


def test_same_content_is_the_same_value(tmp_path: Path) -> None:
    write(tmp_path, train_dot_py="train")
    first = pack_code(tmp_path)
    os.utime(tmp_path / "train.py", (1, 1))
    assert pack_code(tmp_path) == first
    write(tmp_path, train_dot_py="changed")
    assert pack_code(tmp_path) != first


def test_executable_file_stays_executable(tmp_path: Path) -> None:
    write(tmp_path, run_dot_sh="", train_dot_py="")
    (tmp_path / "run.sh").chmod(0o700)
    (tmp_path / "train.py").chmod(0o646)
    archive = pack_code(tmp_path)["archive"]
    assert isinstance(archive, str)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive))) as content:
        assert {member.name: oct(member.mode) for member in content} == {
            "run.sh": "0o755",
            "train.py": "0o644",
        }


def test_largest_code_that_the_chart_takes_is_packed(tmp_path: Path) -> None:
    most = read_data("resources.json")["codeCharacters"]
    script = tmp_path / "train.py"
    script.write_text("#" * most)
    assert pack_code(script) == {"files": {"train.py": "#" * most}}
    script.write_text("#" * (most + 1))
    with pytest.raises(FileError, match="has more than"):
        pack_code(script)
    # Random bytes are not compressed, and base64 takes four characters for three of them.
    folder = write(tmp_path / "project", train_dot_py="")
    (folder / "noise").write_bytes(os.urandom(most * 7 // 10))
    assert len(pack_code(folder)["archive"]) < most


def test_pipe_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="pipe: is neither a file nor a folder"):
        pack_code(tmp_path)


def test_link_to_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "project", train_dot_py="")
    (folder / "data").symlink_to(write(tmp_path / "elsewhere", set_dot_bin=""))
    with pytest.raises(FileError, match="data: is neither a file nor a folder"):
        pack_code(folder)


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


pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("first")
    return path


def text(version: dict[str, Plain] | FileError) -> Plain:
    """The content of the only file of a version."""
    assert isinstance(version, dict), version
    files = version["files"]
    assert isinstance(files, dict)
    return files["train.py"]


def versions(path: Path) -> Iterator[dict[str, Plain] | FileError]:
    return iter(CodeChanges(path))


@pytest.mark.slow
def test_saved_script_is_a_new_version(script: Path) -> None:
    changes = versions(script)
    assert text(next(changes)) == "first"
    script.write_text("second")
    assert text(next(changes)) == "second"
    # As vim and others save: a new file takes the place of the old one.
    beside = script.with_suffix(".new")
    beside.write_text("third")
    beside.replace(script)
    assert text(next(changes)) == "third"


@pytest.mark.slow
def test_ignored_files_and_equal_content_are_no_version(tmp_path: Path, script: Path) -> None:
    (tmp_path / ".hvdignore").write_text("*.log\n")
    changes = versions(tmp_path)
    first = next(changes)
    (tmp_path / "a.log").write_text("noise")
    script.write_text("first")
    script.write_text("second")
    second = next(changes)
    script.write_text("first")
    assert next(changes) == first != second


@pytest.mark.slow
def test_vanished_script_is_an_error_until_it_is_back(script: Path) -> None:
    changes = versions(script)
    next(changes)
    script.unlink()
    gone = next(changes)
    assert isinstance(gone, FileError)
    assert "train.py: cannot read the code" in str(gone)
    script.write_text("back")
    assert text(next(changes)) == "back"
