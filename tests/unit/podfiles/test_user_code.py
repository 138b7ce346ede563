"""The user's code: packed from the mounted ConfigMap, unpacked in each pod."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
import remote
import settings
import user_code
from settings import ConfigurationError, RunError

from tests.unit.podfiles.runs import make_run


def make_archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Return a tar.gz of these members."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def make_file(name: str, mode: int = 0o600) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mode = mode
    return member


def make_member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The mounted ConfigMap, as the kubelet writes it: links into a hidden directory."""
    source, code = tmp_path / "source", tmp_path / "code"
    (source / "..2026_11_22").mkdir(parents=True)
    (source / "..data").symlink_to("..2026_11_22")
    code.mkdir()
    for module in (user_code, settings):
        monkeypatch.setattr(module, "CODE_SOURCE", source)
        monkeypatch.setattr(module, "CODE", code)
    return source


def mount(source: Path, name: str, content: bytes) -> None:
    """Add a key to the mounted ConfigMap."""
    (source / "..2026_11_22" / name).write_bytes(content)
    (source / name).symlink_to(Path("..data", name))


def list_files(directory: Path) -> dict[str, bytes]:
    """Return the files below a directory."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_files_and_archive_are_one_directory(mounted: Path) -> None:
    folder = make_member("model", tarfile.DIRTYPE)
    tool = make_file("run.sh", 0o755)
    archive = make_archive((folder, b""), (make_file("./model/net.py"), b"net"), (tool, b"run"))
    mount(mounted, "archive.tgz", archive)
    mount(mounted, "train.py", b"train")
    code = user_code.UserCode("v1")
    code.unpack()
    assert list_files(code.directory) == {
        "model/net.py": b"net",
        "run.sh": b"run",
        "train.py": b"train",
    }
    assert os.access(code.directory / "run.sh", os.X_OK)
    assert (code.directory / "train.py").stat().st_mode & 0o777 == 0o644


def test_run_without_code_starts_in_the_images_directory(mounted: Path) -> None:
    code = user_code.UserCode("")
    code.unpack()
    code.deliver({make_run().hosts[0]: "127.0.0.1"})
    assert code.directory == Path.cwd()
    assert not list(settings.CODE.iterdir())


@pytest.mark.parametrize(
    ("archive", "problem"),
    [
        (b"no archive", "not a gzip file|could not be opened"),
        (make_archive((make_file("train.py"), b"0" * 9000))[:-30], "end-of-stream|unexpected end"),
        (make_archive((make_file("/etc/passwd"), b"")), "'/etc/passwd' is outside"),
        (make_archive((make_file("a/../../b"), b"")), "'a/../../b' is outside"),
        (make_archive((make_member("link", tarfile.SYMTYPE, "/etc"), b"")), "'link' is neither"),
        (make_archive((make_member("pipe", tarfile.FIFOTYPE), b"")), "'pipe' is neither"),
    ],
    ids=["no archive", "cut", "absolute path", "path outside", "link", "pipe"],
)
def test_broken_archive_is_a_wrong_configuration(
    mounted: Path, archive: bytes, problem: str
) -> None:
    mount(mounted, "archive.tgz", archive)
    code = user_code.UserCode("v1")
    with pytest.raises(ConfigurationError, match=rf"cannot unpack code\.archive: .*({problem})"):
        code.unpack()
    assert not code.directory.exists()


def test_directory_that_exists_is_complete_and_stays(mounted: Path) -> None:
    directory = settings.CODE / "v1"
    directory.mkdir()
    (directory / "train.py").write_text("first")
    user_code.unpack(make_archive((make_file("train.py"), b"second")), directory)
    assert list_files(settings.CODE) == {"v1/train.py": b"first"}


def test_host_without_ssh_is_named_and_the_others_have_the_code(
    mounted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = make_run().hosts
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\n[ "$1" = hvd-cpu-0.hvd ] || { echo "no route" >&2; exit 255; }\n')
    ssh.chmod(0o755)
    monkeypatch.setattr(remote, "GENERATED", tmp_path)
    mount(mounted, "train.py", b"train")
    code = user_code.UserCode("v1")
    code.unpack()
    with pytest.raises(RunError, match=r"to the workers: hvd-cpu-1: no route$"):
        code.deliver({hosts[0]: "10.0.0.1", hosts[1]: "10.0.0.2"})
    assert code.is_on(hosts[0], "10.0.0.1")
    assert not code.is_on(hosts[0], "10.0.0.9"), "a new pod of the same name"
    assert not code.is_on(hosts[1], "10.0.0.2")
