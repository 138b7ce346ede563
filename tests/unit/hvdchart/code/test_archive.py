"""A script or a folder as the chart's value `code`."""

from __future__ import annotations

import base64
import io
import os
import tarfile
from pathlib import Path

import pytest

from hvdchart.chart_files import read_data
from hvdchart.code.archive import list_files, pack_code
from hvdchart.errors import FileError


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


def test_folder_is_an_archive_of_its_files(tmp_path: Path) -> None:
    write(tmp_path, train_dot_py="train", model__net_dot_py="net")
    assert unpacked(tmp_path) == {"model/net.py": b"net", "train.py": b"train"}


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


def test_link_to_a_file_is_that_file(tmp_path: Path) -> None:
    write(tmp_path, outside_dot_py="linked", project__train_dot_py="")
    (tmp_path / "project" / "link.py").symlink_to(tmp_path / "outside.py")
    assert unpacked(tmp_path / "project")["link.py"] == b"linked"


@pytest.mark.parametrize("kind", ["script", "folder"])
def test_large_code_is_refused_with_its_largest_file(tmp_path: Path, kind: str) -> None:
    folder = write(tmp_path / "project", train_dot_py="")
    noise = os.urandom(read_data("resources.json")["codeCharacters"])
    (folder / "weights.txt").write_text(noise.hex())
    with pytest.raises(
        FileError, match=r"more than 400000 .* of 800 kB; .*weights\.txt \(800 kB\).*hvdignore"
    ):
        pack_code(folder if kind == "folder" else folder / "weights.txt")


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


def test_refusal_names_the_three_largest_files(tmp_path: Path) -> None:
    noise = os.urandom(read_data("resources.json")["codeCharacters"])
    for number, size in enumerate((5000, 9000, 7000, len(noise)), 1):
        (tmp_path / f"file{number}").write_bytes(noise[:size])
    with pytest.raises(FileError) as refused:
        pack_code(tmp_path)
    names = [
        name for name in ("file4 (", "file2 (9 kB)", "file3 (7 kB)") if name in str(refused.value)
    ]
    assert len(names) == 3
    assert "file1" not in str(refused.value)


def test_missing_path_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"train\.py: cannot read the code"):
        pack_code(tmp_path / "train.py")


def test_missing_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="none: cannot read the code: No such file"):
        list_files(tmp_path / "none")


def test_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    # A file that nobody can read at its beginning, root included.
    (tmp_path / "memory").symlink_to("/proc/self/mem")
    with pytest.raises(FileError, match="memory: cannot read the code: Input/output error"):
        pack_code(tmp_path)


def test_binary_script_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"\xff\xfe")
    with pytest.raises(FileError, match=r"train\.py: cannot read the code"):
        pack_code(tmp_path / "train.py")


def test_folder_without_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path, _dot_gitignore="*\n")
    with pytest.raises(FileError, match="has no file that is not ignored"):
        pack_code(tmp_path)


def test_pipe_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="pipe: is neither a file nor a folder"):
        pack_code(tmp_path)


def test_link_to_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "project", train_dot_py="")
    (folder / "data").symlink_to(write(tmp_path / "elsewhere", set_dot_bin=""))
    with pytest.raises(FileError, match="data: is neither a file nor a folder"):
        pack_code(folder)
