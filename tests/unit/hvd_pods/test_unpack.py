"""The start of each container of the chart: programs that the pod's template names, or none."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from devtools.docs_gen import programs
from devtools.pods.program_copies import FILES, POD_PROGRAMS

TEXT = (FILES / "unpack.py").read_text()
PRINTS = {"master/main.py": b"import sys\nprint('runs', sys.flags.isolated, sys.argv[1:])\n"}
ARGUMENTS = ("-I", "-S", "-u", "PROGRAMS/master/main.py", "a b", "$c")


@dataclass(frozen=True)
class Container:
    """The folders of a container that unpacks an archive, and what its template says."""

    root: Path
    sha256: str

    @property
    def archive(self) -> Path:
        return self.root / "programs.tgz"

    @property
    def programs(self) -> Path:
        return self.root / "hvd_pods"

    def start(self, before: str = "") -> subprocess.CompletedProcess[str]:
        """Start the container, which runs the program that prints, and wait for its end.

        `before`: Python that makes the interpreter another one.
        """
        text = before + TEXT.replace("/horovod/archive/programs.tgz", str(self.archive))
        text = text.replace("/horovod/bin/hvd_pods", str(self.programs))
        text = text.replace("/dev/termination-log", str(self.root / "message"))
        arguments = [argument.replace("PROGRAMS", str(self.programs)) for argument in ARGUMENTS]
        command = [sys.executable, "-I", "-S", "-c", text, self.sha256, *arguments]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(
            command, env={"PATH": path}, capture_output=True, text=True, check=False, timeout=60
        )


def make_container(root: Path, files: dict[str, bytes]) -> Container:
    """Make a container with an archive of files."""
    archive = programs.pack(files)
    container = Container(root, hashlib.sha256(archive).hexdigest())
    container.archive.write_bytes(archive)
    container.programs.mkdir()
    return container


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return make_container(tmp_path, PRINTS)


def test_program_of_the_archive_takes_the_place_of_the_start(container: Container) -> None:
    done = container.start()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "runs 1 ['a b', '$c']\n"


@pytest.mark.promise("changed archive runs nothing")
def test_changed_archive_runs_nothing(container: Container) -> None:
    """Who may edit ConfigMaps, but not Jobs, gets no program to run."""
    container.archive.write_bytes(programs.pack({"master/main.py": b"print('evil')\n"}))
    done = container.start()
    assert done.returncode == os.EX_CONFIG
    assert done.stdout == ""
    assert container.sha256 in done.stderr
    assert "`helm upgrade`" in (container.root / "message").read_text()
    assert list(container.programs.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["../a.py", "/a.py", "a/b/c/d.py", "a//b.py", "a/..", ".a", "a/.b", "x" * 99 + "/"]
)
def test_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    done = make_container(tmp_path, {**PRINTS, name: b""}).start()
    assert done.returncode == os.EX_CONFIG
    assert name in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"programs.tgz", "hvd_pods", "message"}


FAKE = "import sys\nsys.modules['_ssl'] = type('', (), {})\n"


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("import sys\nsys.version_info = (3, 7, 9)\n", "Python 3.7"),
        ("import sys\nsys.modules['_ssl'] = None\n", "_ssl"),
        (
            f"{FAKE}sys.modules['_ssl'].HAS_TLSv1_3 = False\n"
            "sys.modules['_ssl'].OPENSSL_VERSION = 'OpenSSL 1.1.0l'\n",
            "OpenSSL 1.1.0l",
        ),
    ],
    ids=["old", "no ssl", "no TLS 1.3"],
)
def test_image_without_what_each_pod_needs_is_refused_before_anything_runs(
    container: Container, python: str, said: str
) -> None:
    done = container.start(python)
    assert done.returncode == os.EX_CONFIG
    assert said in done.stderr
    message = (container.root / "message").read_text()
    assert re.search(r"\bpython3\b.*\b3\.8\b.*\bssl\b", message)
    assert list(container.programs.iterdir()) == []


def test_missing_archive_is_named(container: Container) -> None:
    container.archive.unlink()
    done = container.start()
    assert done.returncode == os.EX_CONFIG
    assert str(container.archive) in done.stderr


def test_content_that_is_no_archive_is_refused(container: Container) -> None:
    container.archive.write_bytes(b"x")
    other = Container(container.root, hashlib.sha256(b"x").hexdigest())
    done = other.start()
    assert done.returncode == os.EX_CONFIG
    assert "cannot decompress" in done.stderr


def test_restarted_container_has_nothing_of_the_one_before(container: Container) -> None:
    """What training code has changed or left there is gone."""
    assert container.start().returncode == 0
    elsewhere = container.root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    folder = container.programs / "master"
    folder.chmod(0o700)
    (folder / "main.py").unlink()
    (folder / "main.py").write_text("print('evil')")
    (folder / "__pycache__").unlink()
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "json.py").touch()
    (container.programs / "linked").symlink_to(elsewhere)
    folder.chmod(0)
    assert container.start().stdout.startswith("runs")
    assert {path.name for path in container.programs.iterdir()} == {"master"}
    assert (elsewhere / "kept").exists()


@pytest.mark.parametrize("package", ["master", "library/keep"])
def test_programs_are_read_only_and_leave_nothing_compiled(tmp_path: Path, package: str) -> None:
    container = make_container(tmp_path, {**PRINTS, f"{package}/one.py": b"", "VERSION": b""})
    assert container.start().returncode == 0
    folder = container.programs / package
    files = [path for path in folder.iterdir() if path.name != "main.py"]
    assert {path.name for path in files} == {"one.py", "__pycache__"}
    assert {path.stat().st_mode for path in files} == {0o100444}
    folders = [path for path in container.programs.rglob("*") if path.is_dir()]
    assert {path.stat().st_mode for path in folders} == {0o040555}


def test_start_suits_python_3_8() -> None:
    ast.parse(TEXT, feature_version=(3, 8))


def test_archive_of_the_chart_has_each_program() -> None:
    """It runs on Python 3.8, and a traceback names the lines of the sources."""
    files = programs.read(programs.PROGRAMS_ARCHIVE.read_bytes())
    sources = {
        path.relative_to(POD_PROGRAMS).as_posix(): path for path in POD_PROGRAMS.glob("*/**/*.py")
    }
    packed = {name: files.pop(name).decode() for name in sources}
    assert all(ast.parse(text, feature_version=(3, 8)) for text in packed.values())
    lines = {name: text.count("\n") for name, text in packed.items()}
    assert lines == {name: path.read_text().count("\n") for name, path in sources.items()}
    assert files.pop("VERSION").startswith(b"The programs of the pods, of version ")
    assert {Path(name).suffix for name in files} == {".json"}


def test_chart_s_archive_unpacks(tmp_path: Path) -> None:
    files = programs.read(programs.PROGRAMS_ARCHIVE.read_bytes())
    container = make_container(tmp_path, files)
    container.start()
    there = {
        path.relative_to(container.programs).as_posix(): path.read_bytes()
        for path in container.programs.rglob("*")
        if path.is_file() and path.name != "__pycache__"
    }
    assert there == files
