"""A script or a folder as the chart's value `code`, its versions, and back."""

from __future__ import annotations

import base64
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hvdchart.chart_files import read_data
from hvdchart.code.archive import pack_code
from hvdchart.code.unpack import unpack_code
from hvdchart.errors import FileError
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command
from tests.unit.hvdchart.runs import LABELS

pytestmark = pytest.mark.timeout(120)
MOST = int(read_data("resources.json")["codeCharacters"])


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write files, whose folders are created."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def config_map(path: Path, name: str = "hvd-code-1", time: str = "2026-01-01") -> dict[str, Any]:
    """The ConfigMap that the chart makes of the code at this path."""
    code = pack_code(path)
    metadata = {"name": name, "labels": LABELS, "creationTimestamp": time}
    if "archive" in code:
        return {"metadata": metadata, "binaryData": {"archive.tgz": code["archive"]}}
    return {"metadata": metadata, "data": code["files"]}


def test_folder_comes_back_without_ignored_files(tmp_path: Path) -> None:
    """With the patterns and the order of git; a link to a file is that file."""
    folder = write(tmp_path / "project", {
        ".gitignore": "*.log\n/data/\n!keep.log\n", ".hvdignore": "notes/\n", "a.log": "",
        "keep.log": "kept", "run.sh": "", "data/set.bin": "", "model/data/inner.py": "",
        "model/notes": "a file, and no folder", "notes/x.md": "", ".git/config": "",
        "__pycache__/x.pyc": "", "model/.gitignore": "*.h5\n!*.log\n", "model/w.h5": "",
        "model/b.log": "kept",
    })  # fmt: skip
    write(tmp_path, {"outside.py": "linked"})
    (folder / "link.py").symlink_to(tmp_path / "outside.py")
    (folder / "run.sh").chmod(0o700)
    (folder / "keep.log").chmod(0o646)
    target = tmp_path / "new" / "folder"
    files = unpack_code(config_map(folder), target)
    assert [name for name in files if "ignore" not in name] == [
        "keep.log", "link.py", "model/b.log", "model/data/inner.py", "model/notes", "run.sh",
    ]  # fmt: skip
    assert (target / "link.py").read_text() == "linked"
    modes = {name: (target / name).stat().st_mode & 0o777 for name in ("run.sh", "keep.log")}
    assert modes == {"run.sh": 0o755, "keep.log": 0o644}


def test_same_content_is_the_same_value(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "train"})
    first = pack_code(tmp_path)
    os.utime(tmp_path / "train.py", (1, 1))
    assert pack_code(tmp_path) == first
    write(tmp_path, {"train.py": "changed"})
    assert pack_code(tmp_path) != first


def test_largest_code_that_the_chart_takes_is_packed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("#" * MOST)
    assert pack_code(script) == {"files": {"train.py": "#" * MOST}}
    # Random bytes are not compressed, and base64 takes four characters for three of them.
    folder = write(tmp_path / "project", {"train.py": ""})
    (folder / "noise").write_bytes(os.urandom(MOST * 7 // 10))
    assert len(pack_code(folder)["archive"]) < MOST


def link_to_folder(folder: Path) -> None:
    write(folder.parent / "elsewhere", {"set.bin": ""})
    (folder / "data").symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize(
    ("path", "spoil", "message"),
    [
        ("train.py", lambda at: (at / "train.py").write_text("#" * (MOST + 1)), "has more than"),
        (".", lambda at: (at / "x.bin").write_bytes(os.urandom(2 * MOST)),
         r"has more than .* of 800 kB; .*x\.bin \(800 kB\).*hvdignore"),
        (".", link_to_folder, "data: is neither a file nor a folder"),
        (".", lambda at: write(at, {".gitignore": "*\n"}), "has no file that is not ignored"),
        (".", lambda at: write(at, {"model/.gitignore": "*.h5\n\n!\n"}),
         r"/model/\.gitignore:3: '!' is not a pattern"),
    ],
)  # fmt: skip
def test_code_that_cannot_be_sent_is_refused_by_name(
    tmp_path: Path, path: str, spoil: Callable[[Path], object], message: str
) -> None:
    folder = write(tmp_path / "project", {"train.py": ""})
    spoil(folder)
    with pytest.raises(FileError, match=message):
        pack_code(folder / path)


def test_folder_with_files_is_refused_and_stays(tmp_path: Path) -> None:
    project = write(tmp_path / "project", {"train.py": "train"})
    with pytest.raises(FileError, match=r"project: is not empty; name a new folder"):
        unpack_code(config_map(project / "train.py"), project)
    assert (project / "train.py").read_text() == "train"


@pytest.mark.parametrize("name", ["../out.py", "inner/../../out.py"])
def test_archive_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    """Anyone who may change ConfigMaps of the namespace may have written it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo(name))
    config_map = {"binaryData": {"archive.tgz": base64.b64encode(content.getvalue()).decode()}}
    with pytest.raises(FileError, match="cannot write the code: "):
        unpack_code(config_map, tmp_path / "inside" / "new")
    assert list(tmp_path.rglob("*.py")) == []


def test_command_writes_the_newest_code(
    hvdchart: Command, fake_cluster: FakeCluster, tmp_path: Path
) -> None:
    script, out = write(tmp_path, {"train.py": "first"}) / "train.py", tmp_path / "out"
    first = config_map(script)
    script.write_text("changed")
    second = config_map(script, "hvd-code-2", "2026-01-02")
    record = {"metadata": {"name": "hvd-run", "labels": LABELS}, "data": {"state": "Finished"}}
    fake_cluster.put("configmaps", record)
    assert "no run hvd with code" in hvdchart("code", "hvd", "-w", out).errors
    fake_cluster.put("configmaps", second, first)
    done = hvdchart("code", "hvd", "-w", out)
    assert (done.code, done.output) == (0, f"{out / 'train.py'}\n")
    assert (out / "train.py").read_text() == "changed"
