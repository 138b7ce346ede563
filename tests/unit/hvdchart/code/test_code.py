"""A script or a folder as the chart's value `code`, its versions, and back."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hvd_pods.pod import code_archive
from hvdchart.chart_files import read_data
from hvdchart.code.archive import list_files, pack_code, pack_files
from hvdchart.errors import FileError
from tests.unit.folders import write_files

pytestmark = pytest.mark.timeout(120)
MOST = int(read_data("resources.json")["codeBytes"])
# Of a file with twice as many bytes.
KB = 2 * MOST // 1000


def come_back(path: Path, folder: Path) -> list[str]:
    """Unpack the code at a path in a folder as pods do; the names of its files."""
    code = pack_code(path)
    files = {name: text.encode() for name, text in code.get("files", {}).items()}
    if "archive" in code:
        files[code_archive.CODE_ARCHIVE] = base64.b64decode(code["archive"])
    folder.parent.mkdir(parents=True, exist_ok=True)
    code_archive.unpack(code_archive.pack(files), folder)
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with files that git or .hvdignore leaves out, a link and a program."""
    folder = write_files(
        tmp_path / "project",
        {
            ".gitignore": "*.log\n/data/\n!keep.log\n",
            ".hvdignore": "notes/\n",
            "a.log": "",
            "keep.log": "kept",
            "run.sh": "",
            "data/set.bin": "",
            "model/data/inner.py": "",
            "model/notes": "a file, and no folder",
            "notes/x.md": "",
            ".git/config": "",
            "__pycache__/x.pyc": "",
            "model/.gitignore": "*.h5\n!*.log\n",
            "model/w.h5": "",
            "model/b.log": "kept",
        },
    )
    (folder / "link.py").symlink_to("model/notes")
    (folder / "run.sh").chmod(0o700)
    (folder / "keep.log").chmod(0o646)
    return folder


def test_folder_comes_back_without_ignored_files(project: Path, tmp_path: Path) -> None:
    """With the patterns and the order of git."""
    files = come_back(project, tmp_path / "new" / "folder")
    assert [name for name in files if "ignore" not in name] == [
        "keep.log",
        "link.py",
        "model/b.log",
        "model/data/inner.py",
        "model/notes",
        "run.sh",
    ]


def test_links_come_back_as_files_and_files_with_usual_rights(
    project: Path, tmp_path: Path
) -> None:
    target = tmp_path / "new" / "folder"
    come_back(project, target)
    assert (target / "link.py").read_text() == "a file, and no folder"
    modes = {name: (target / name).stat().st_mode & 0o777 for name in ("run.sh", "keep.log")}
    assert modes == {"run.sh": 0o755, "keep.log": 0o644}


def test_value_is_that_of_the_content(tmp_path: Path) -> None:
    """Whenever it was written."""
    first = pack_code(write_files(tmp_path, {"train.py": "train"}))
    os.utime(tmp_path / "train.py", (1, 1))
    assert pack_code(tmp_path) == first
    assert pack_code(write_files(tmp_path, {"train.py": "changed"})) != first


def test_largest_script_that_the_chart_takes_is_packed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("#" * MOST)
    assert pack_code(script) == {"files": {"train.py": "#" * MOST}}


def test_limit_of_a_script_counts_bytes(tmp_path: Path) -> None:
    """As the chart does: a character may have several."""
    script = tmp_path / "train.py"
    script.write_text("#" + "\u00e9" * (MOST // 2), encoding="utf-8")
    with pytest.raises(FileError):
        pack_code(script)


def test_largest_folder_that_the_chart_takes_is_packed(tmp_path: Path) -> None:
    """Random bytes are not compressed, and base64 takes four characters for three of them."""
    folder = write_files(tmp_path / "project", {"train.py": ""})
    (folder / "noise").write_bytes(os.urandom(MOST * 7 // 10))
    assert len(pack_code(folder)["archive"]) < MOST


SECRET_NAMES = [
    ".env",
    ".env.local",
    ".ENV",
    "model/.netrc",
    "key.pem",
    "id_rsa",
    "kubeconfig",
    "prod.kubeconfig",
    "Kaggle.json",
    "a/credentials.json",
    "id_ed25519_work",
    ".ssh/config",
    ".aws/credentials",
    "model/.kube/config",
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_name_that_holds_secrets_stays_out(tmp_path: Path, name: str) -> None:
    folder = write_files(tmp_path, {"train.py": "", name: "secret", ".gitignore": "!*\n!.*\n"})
    said: list[str] = []
    assert set(list_files(folder, said.append)) == {"train.py", ".gitignore"}
    assert len(said) == 1
    assert name.partition("/")[0] in said[0]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_name_that_holds_secrets_is_handed_out_where_it_is_asked_for(
    tmp_path: Path, name: str
) -> None:
    lines = [f"!{name}\n", f"!{name.rpartition('/')[0]}/\n" if "/" in name else ""]
    folder = write_files(
        tmp_path, {"train.py": "", name: "asked for", ".hvdignore": "".join(lines)}
    )
    assert name in list_files(folder)


def test_pattern_asks_for_no_secret(tmp_path: Path) -> None:
    folder = write_files(tmp_path, {"train.py": "", ".env": "", ".hvdignore": "*\n!*.py\n!.e*\n"})
    assert set(list_files(folder)) == {"train.py"}


@pytest.mark.parametrize(
    "name",
    [".env.example", "id_rsa.pub", "id_mapping.py", "keys.py", "kubeconfig.py", "credentials/a.py"],
)
def test_name_that_only_looks_like_a_secret_is_handed_out(tmp_path: Path, name: str) -> None:
    assert name in list_files(write_files(tmp_path, {name: ""}))


@pytest.mark.parametrize(
    "target", ["outside/key", ".env", "inner/.git/config", "loop", "/proc/self/environ"]
)
@pytest.mark.promise("link to what the code does not have is refused")
def test_link_to_what_the_code_does_not_have_is_refused(tmp_path: Path, target: str) -> None:
    """A repository of a stranger may have it."""
    write_files(tmp_path, {"outside/key": "", "code/.env": "", "code/inner/.git/config": ""})
    place = {"outside/key": "../outside/key"}.get(target, target)
    (tmp_path / "code" / "loop").symlink_to(place)
    with pytest.raises(FileError, match="code/loop: "):
        pack_code(tmp_path / "code")


def test_folder_may_be_named_by_a_link(tmp_path: Path) -> None:
    write_files(tmp_path / "code", {"train.py": ""})
    (tmp_path / "link").symlink_to("code")
    assert set(list_files(tmp_path / "link")) == {"train.py"}


def test_script_that_is_a_link_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {"key": "secret", "code/other.py": "other"})
    script = tmp_path / "code" / "train.py"
    script.symlink_to("../key")
    with pytest.raises(FileError, match=r"train\.py: .*/key\b"):
        pack_code(script)


def test_script_may_be_a_link_within_its_folder(tmp_path: Path) -> None:
    write_files(tmp_path, {"other.py": "other"})
    (tmp_path / "train.py").symlink_to("other.py")
    assert pack_code(tmp_path / "train.py") == {"files": {"train.py": "other"}}


@pytest.mark.parametrize("path", [".", "pipe"])
def test_pipe_is_refused_and_not_waited_for(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match=r"\bpipe: "):
        pack_code(tmp_path / path)


def test_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    """It may have come there after the files were listed."""
    (tmp_path / "train.py").symlink_to("/etc/hostname")
    with pytest.raises(FileError, match=r"train\.py: .*symbolic"):
        pack_files(tmp_path, {"train.py": tmp_path / "train.py"})


@pytest.mark.parametrize("path", [".", "data.bin", "program"])
@pytest.mark.promise("file that is larger than any code is refused unread")
def test_file_that_is_larger_than_any_code_is_refused_unread(tmp_path: Path, path: str) -> None:
    """It has no blocks on the disk, and more bytes than any machine has memory."""
    for name in ("data.bin", "program"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 42)
    (tmp_path / "program").chmod(0o755)
    with pytest.raises(FileError, match=r"\b(data\.bin|program) .*kB"):
        pack_code(tmp_path / path)


def test_program_comes_back_as_a_program(tmp_path: Path) -> None:
    script = write_files(tmp_path, {"run.sh": "#!/bin/sh\n"}) / "run.sh"
    script.chmod(0o755)
    come_back(script, tmp_path / "new")
    assert (tmp_path / "new" / "run.sh").stat().st_mode & 0o777 == 0o755


def link_to_folder(folder: Path) -> None:
    write_files(folder.parent / "elsewhere", {"set.bin": ""})
    (folder / "data").symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize(
    ("path", "spoil", "message"),
    [
        ("train.py", lambda at: (at / "train.py").write_text("#" * (MOST + 1)), r"train\.py .* kB"),
        (
            ".",
            lambda at: (at / "x.bin").write_bytes(os.urandom(2 * MOST)),
            rf"{KB} kB; .*x\.bin \({KB} kB\).*hvdignore",
        ),
        (".", link_to_folder, "data: .*elsewhere"),
        (".", lambda at: write_files(at, {".gitignore": "*\n"}), "project: "),
        (
            ".",
            lambda at: write_files(at, {"model/.gitignore": "*.h5\n\n!\n"}),
            r"/model/\.gitignore:3: '!'",
        ),
    ],
)
def test_code_that_cannot_be_sent_is_refused_by_name(
    tmp_path: Path, path: str, spoil: Callable[[Path], object], message: str
) -> None:
    folder = write_files(tmp_path / "project", {"train.py": ""})
    spoil(folder)
    with pytest.raises(FileError, match=message):
        pack_code(folder / path)
