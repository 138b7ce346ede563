"""Building images: a builder that records its calls."""

from __future__ import annotations

import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hvdchart.errors import FileError
from hvdchart.image import build as building
from hvdchart.image import memory
from hvdchart.image.build import Source, context_files, read_step
from hvdchart.image.deliver import push, save
from tests.fakes.fixtures import Command
from tests.fakes.program import StubProgram


def commands(stub: StubProgram) -> list[list[str]]:
    """The calls, but for those that ask whether the engine works."""
    return [call.arguments for call in stub.calls if call.arguments != ["info"]]


@pytest.mark.slow
def test_an_image_is_built_once_for_each_content(
    hvdchart: Command, folder: Path, docker: StubProgram
) -> None:
    done = hvdchart("build", folder, "--image", "host:5000/team/r")
    assert done.code == 0, done.errors
    reference = done.output.strip()
    assert reference == Source(folder, "host:5000/team/r").reference()
    assert commands(docker) == [
        ["inspect", "--type=image", reference],
        ["build", "--file", str(folder / "Dockerfile"), "--tag", reference, str(folder)],
    ]
    assert "built host:5000/team/r:" in done.errors
    assert re.search(r"hvdchart: step 1/1: FROM a \(after \d+ s\)\n", done.errors)
    assert done.errors.count(" (after ") == 1
    assert "STEP" not in done.errors
    docker.answer("inspect")
    again = hvdchart("build", folder, "--image", "host:5000/team/r")
    assert again.output == done.output
    assert "is built already" in again.errors
    docker.answer("inspect", code=1)
    third = hvdchart("build", folder, "--image", "host:5000/team/r", "-v")
    assert ", about 0 s as the last time\n" in third.errors
    assert "step 1/1: FROM a (after 0 s, " in third.errors
    assert "STEP 1/1: FROM a\n" in third.errors


def test_the_tag_is_that_of_the_content(folder: Path) -> None:
    def tag() -> str:
        return Source(folder, "r").reference()

    first = tag()
    assert len(first) == len("r:") + 12
    (folder / "train.py").touch()
    assert tag() == first, "times do not count"
    (folder / "train.py").write_text("1")
    changed = tag()
    (folder / "train.py").chmod(0o755)
    runnable = tag()
    (folder / "train.py").chmod(0o645)
    assert len({first, changed, runnable, tag()}) == 4
    (folder / ".dockerignore").write_text("data\n.dockerignore\n")
    ignored = tag()
    (folder / "data" / "big").write_text("2")
    assert tag() == ignored


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ("", ["Dockerfile", "data/big", "data/x.pyc", "x.pyc"]),
        ("*.pyc\n", ["Dockerfile", "data/big", "data/x.pyc"]),
        ("**/*.pyc\n", ["Dockerfile", "data/big"]),
        ("#x.pyc\n\n./data\n", ["#x.pyc", "Dockerfile", "x.pyc"]),
        ("*\n!data\n", ["Dockerfile", "data/big", "data/x.pyc"]),
        ("Dockerfile\n", ["Dockerfile", "data/big", "data/x.pyc", "x.pyc"]),
    ],
)
def test_patterns_begin_at_the_folder_as_dockers_do(
    folder: Path, patterns: str, left: list[str]
) -> None:
    (folder / "train.py").unlink()
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").touch()
    for name in ("x.pyc", "data/x.pyc", *(["#x.pyc"] if patterns.startswith("#") else [])):
        (folder / name).touch()
    (folder / ".dockerignore").write_text(patterns)
    assert [name for name in context_files(folder) if name != ".dockerignore"] == left


def test_a_line_that_is_no_pattern_is_refused(folder: Path) -> None:
    (folder / ".dockerignore").write_text("data\n!\n")
    with pytest.raises(FileError, match=r"/\.dockerignore:2: '!' is not a pattern of \.gitignore"):
        context_files(folder)


def test_a_build_that_fails_shows_its_last_lines(
    hvdchart: Command, folder: Path, docker: StubProgram
) -> None:
    docker.answer("build", "".join(f"line {n}\n" for n in range(30)), "no such package\n", 1)
    done = hvdchart("build", folder, "--image", "r", "--push")
    assert done.code == 9
    assert done.output == ""
    assert f"docker cannot build {folder} (exit code 1): " in done.errors
    assert "line 29" in done.errors
    assert "line 5;" not in done.errors
    assert "push" not in [call[0] for call in commands(docker)]


def test_a_folder_without_a_dockerfile_is_refused(
    hvdchart: Command, folder: Path, docker: StubProgram
) -> None:
    (folder / "Dockerfile").unlink()
    done = hvdchart("build", folder, "--image", "r")
    assert (done.code, "Dockerfile: no such file" in done.errors) == (5, True)
    with pytest.raises(FileError):
        context_files(folder / "none")


def test_each_engine_has_its_own_command(
    folder: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "runtime_options", lambda: ["--runtime=runc"])
    expected = {
        "podman": ["--runtime=runc", "build"],
        "buildah": ["bud", "--isolation", "oci", "--runtime=runc"],
    }
    for name, words in expected.items():
        stub = StubProgram(programs, name)
        stub.answer("inspect", code=1)
        building.build(Source(folder, "r"), name, lambda line: None)
        assert commands(stub)[-1][: len(words)] == words
        # Under the name that pods ask for: their own names begin with localhost/.
        save("r:1", name, folder / "a.tar")
        assert commands(stub)[-1] == ["push", "r:1", f"docker-archive:{folder / 'a.tar'}:r:1"]
        push("team/r:1", name)
        assert commands(stub)[-1] == ["push", "team/r:1", "docker://team/r:1"]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("STEP 2/5: RUN pip  install a\n", "step 2/5: RUN pip install a"),
        ("[1/2] STEP 3/4: COPY . .", "step 3/4: COPY . ."),
        ("Step 2/5 : RUN make", "step 2/5: RUN make"),
        ("#7 [2/5] RUN make", "step 2/5: RUN make"),
        ("#12 [stage-1 10/12] RUN make", "step 10/12: RUN make"),
        ("#7 0.512 [2/5] of the tests", None),
        ("#5 [internal] load metadata", None),
        ("a step 2/5: of training", None),
        (f"STEP 2/5: {'x' * 61}", f"step 2/5: {'x' * 60}"),
    ],
)
def test_steps_of_each_builder_are_read(line: str, step: str | None) -> None:
    assert read_step(line) == step


def test_output_goes_on_line_by_line_and_its_last_ten_are_kept() -> None:
    lines: list[str] = []
    code, last = building.stream(["sh", "-c", "seq 20; exit 3"], lines.append)
    assert (code, lines) == (3, [str(n) for n in range(1, 21)])
    assert last == lines[10:]


@pytest.mark.parametrize(
    ("seconds", "last", "text"),
    [
        (2.0, None, "after 2 s"),
        (4.4, 5.0, "after 4 s, about 1 s left"),
        (5.0, 5.0, "after 5 s, soon done"),
        (6.0, 5.0, "after 6 s, soon done"),
    ],
)
def test_what_is_left_is_estimated(seconds: float, last: float | None, text: str) -> None:
    assert building._times(seconds, last) == text


def test_an_estimate_says_what_is_left(
    hvdchart: Command, folder: Path, docker: StubProgram
) -> None:
    memory.keep_duration("r", 4000.0)
    done = hvdchart("build", folder, "--image", "r")
    assert ", about 4000 s as the last time\n" in done.errors
    assert re.search(r"step 1/1: FROM a \(after \d+ s, about (4000|39\d\d) s left\)", done.errors)


@pytest.mark.parametrize("content", ["{broken", "[]", '{"r": []}'])
def test_a_damaged_memory_is_no_obstacle(
    hvdchart: Command, folder: Path, docker: StubProgram, content: str
) -> None:
    memory.keep_duration("r", 1.0)
    (file,) = (folder.parent / "cache" / "hvdchart").iterdir()
    file.write_text(content)
    assert hvdchart("build", folder, "--image", "r").code == 0
    assert isinstance(memory.last_duration("r"), float)


def test_of_pushed_images_the_last_ones_are_remembered(folder: Path) -> None:
    memory._write("pushed", {str(number): True for number in range(500)})
    memory.keep_pushed("new")
    assert [memory.was_pushed(name) for name in ("0", "1", "499", "new")] == [False, *[True] * 3]
    memory.keep_duration("r", 1.26)
    assert memory.last_duration("r") == 1.3


def test_a_cache_that_cannot_be_written_is_no_obstacle(folder: Path) -> None:
    (folder.parent / "cache").touch()
    memory.keep_pushed("new")
    assert not memory.was_pushed("new")


def test_a_watch_builds_again_after_a_failure_until_it_is_interrupted(
    hvdchart: Command, folder: Path, docker: StubProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker.answer("build", errors="boom", code=1)

    def changes(watched: Path) -> object:
        docker.answer("build")
        (watched / "train.py").write_text("mended")
        yield None
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "changes", changes)
    done = hvdchart("build", folder, "--image", "r", "--watch")
    assert done.code == 130
    assert "boom; waiting for the next change" in done.errors
    assert done.output == f"{Source(folder, 'r').reference()}\n"


@pytest.mark.slow
def test_changes_are_noticed(folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from hvdchart.image.build import changes;"
        "print('ready', flush=True); next(changes(Path(sys.argv[1]))); print('changed')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        number = 0
        # The watch has begun some time after the line.
        while process.poll() is None:
            number += 1
            (folder / "train.py").write_text(str(number))
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
        assert process.stdout.readline() == "changed\n"


@pytest.mark.slow
def test_an_interrupted_watch_of_changes_says_so(folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from hvdchart.image.build import changes\n"
        "for _ in changes(Path(sys.argv[1])): print('changed', flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        number = 0
        while not select.select([process.stdout], [], [], 0.2)[0]:
            number += 1
            (folder / "train.py").write_text(str(number))
        assert process.stdout.readline() == "changed\n"
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait() == -signal.SIGINT, "the command ends with the status of an interrupt"


def test_a_file_that_is_removed_while_all_are_read_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "context_files", lambda *_: ["Dockerfile", "gone"])
    with pytest.raises(FileError, match="gone: cannot read: No such file or directory"):
        Source(folder, "r").reference()
