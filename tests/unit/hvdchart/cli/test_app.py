"""The command: output, exit codes, and one message instead of a traceback."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from devtools.common.repository import EXAMPLE_VALUES, ROOT
from hvdchart import __version__
from hvdchart.cli import app
from hvdchart.errors import HvdchartError, SpecError
from tests.support.fakes.cluster import FakeCluster
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import DONE, ENDED_MASTER, FAILED
from tests.unit.hvdchart.played_runs import play_run

SPEC = EXAMPLE_VALUES / "xeon-8180-16.spec.yaml"
GOLDEN = EXAMPLE_VALUES / "xeon-8180-16.yaml"


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of specs are given from the root of the checkout."""
    monkeypatch.chdir(ROOT)


@pytest.mark.slow
def test_module_runs_as_a_program_and_reads_standard_input() -> None:
    command = [sys.executable, "-m", "hvdchart", "plan", "-", "-o", "json"]
    with SPEC.open("rb") as spec:
        done = subprocess.run(command, stdin=spec, capture_output=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout)["ranks"] == 32


def test_render_writes_values_to_a_file(hvdchart: Command, tmp_path: Path) -> None:
    target = tmp_path / "values.yaml"
    assert hvdchart("render", SPEC, "-w", target).code == 0
    assert target.read_text() == GOLDEN.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["values.yaml"]


@pytest.mark.parametrize("command", ["plan", "render", "migrate"])
def test_closed_standard_input_is_reported(
    hvdchart: Command, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    done = hvdchart(command, "-")
    assert (done.code, done.errors) == (5, "hvdchart: standard input is closed\n")


@pytest.mark.slow
@pytest.mark.parametrize("words", [("plan", str(SPEC)), ("plan", "--help"), ("--version",)])
def test_closed_standard_output_is_refused(words: tuple[str, ...]) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "hvdchart", *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 5
    assert re.fullmatch("hvdchart: standard output is closed.*/dev/null\n", done.stderr)


@pytest.mark.slow
def test_closed_standard_error_changes_no_exit_code() -> None:
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "hvdchart", "plan"]
    done = subprocess.run([*command, "no-such.yaml"], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (5, b"")


@pytest.mark.parametrize(
    "words", [("plan", "{}"), ("run", "{}.py"), ("plan", SPEC, "--code", "{}"), ("deploy", "{}")]
)
def test_name_that_no_file_can_have_is_reported(
    hvdchart: Command, words: tuple[str | Path, ...]
) -> None:
    name = 300 * "a"
    done = hvdchart(*(str(word).format(name) for word in words))
    assert done.code == 5
    assert name in done.errors
    assert len(done.errors.splitlines()) == 1


@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        ("render", "{file}", "-w", "{same}"),
        ("render", "{folder}", "-w", "{same}"),
        ("render", SPEC, "{file}", "-w", "{same}"),
        ("migrate", "{file}", "-w", "{same}"),
        ("migrate", "{file}", "--report", "{same}"),
    ],
)
def test_no_command_writes_to_the_file_that_it_reads(
    hvdchart: Command, tmp_path: Path, words: tuple[str | Path, ...], is_link: bool
) -> None:
    file = tmp_path / "run.spec.yaml"
    file.write_text(SPEC.read_text())
    same = file
    if is_link:
        same = tmp_path / "values.yaml"
        same.symlink_to(file)
    done = hvdchart(*(str(word).format(file=file, folder=tmp_path, same=same) for word in words))
    assert done.code == 2
    assert str(same) in done.errors
    assert file.read_text() == SPEC.read_text()


def test_check_may_compare_with_the_file_that_it_reads(hvdchart: Command) -> None:
    assert hvdchart("render", SPEC, "-w", SPEC, "--check").code == 1


def test_dash_is_standard_output(
    hvdchart: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = hvdchart("render", SPEC, "-w", "-")
    assert (done.code, done.output) == (0, GOLDEN.read_text())
    assert not [*tmp_path.iterdir()]


def test_render_explains_on_standard_error(hvdchart: Command) -> None:
    done = hvdchart("render", SPEC, "--explain")
    assert (done.code, done.output) == (0, GOLDEN.read_text())
    assert "worker.slots" in done.errors


def test_render_warns_on_standard_error(hvdchart: Command) -> None:
    done = hvdchart("render", SPEC, "--set", "volumes.output={pvc: a}")
    assert "ReadWriteMany" in done.errors
    assert "ReadWriteMany" not in done.output


def test_check_accepts_a_file_with_the_same_values(hvdchart: Command) -> None:
    assert hvdchart("render", SPEC, "-w", GOLDEN, "--check").code == 0


def test_check_shows_the_difference_and_writes_nothing(hvdchart: Command, tmp_path: Path) -> None:
    target = tmp_path / "values.yaml"
    target.write_text(GOLDEN.read_text())
    done = hvdchart("render", SPEC, "-w", target, "--check", "--set", "nodes.0.count=5")
    assert done.code == 1
    assert "+  number: 5" in done.errors
    assert target.read_text() == GOLDEN.read_text()


def test_check_refuses_a_missing_file_and_does_not_create_it(
    hvdchart: Command, tmp_path: Path
) -> None:
    target = tmp_path / "none.yaml"
    assert hvdchart("render", SPEC, "-w", target, "--check").code == 1
    assert not target.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "names"),
    [
        (["render", "none.yaml"], 5, ["none.yaml", os.strerror(errno.ENOENT)]),
        (["render", "values"], 5, ["values/run.spec.yaml"]),
        (["render", "/dev/zero"], 3, ["/dev/zero", " 131072 "]),
        (["render", SPEC, "--set", "nodes.0.count=0"], 3, ["nodes.0.count=0", "got 0"]),
        (["render", SPEC, "-w", "/proc/none/x"], 5, ["/proc/none/x"]),
        (["render", SPEC, "--code", "none.py"], 5, ["none.py", os.strerror(errno.ENOENT)]),
        (["render"], 2, ["no spec"]),
        (["render", SPEC, "--check"], 2, ["--check", "--write"]),
        (["plan", SPEC, "-o", "xml"], 2, ["'xml'", "'text', 'json', 'yaml'"]),
        (["bench", SPEC, "--command", "a 'b"], 2, ["--command"]),
        (["migrate"], 2, ["'FILE'"]),
        (["migrate", "values"], 5, ["values", os.strerror(errno.EISDIR)]),
        (["bench", SPEC, "--workers", "1,,2"], 2, ["--workers"]),
        (["wait", "hvd", "--timeout", "5 m"], 2, ["'5 m'", " 5m"]),
        (["image", "check", "i", "--mode", "x"], 2, ["--mode", "mpirun, direct"]),
        (["dev", "-"], 2, ["--code"]),
        (["dev", "prjct/run.spec.yaml"], 5, ["prjct/run.spec.yaml"]),
        (["rendr"], 2, ["'rendr'", "'render'"]),
        (["submit", "train.py"], 2, ["'submit'", "'run'"]),
        (["rm", "hvd"], 2, ["'rm'", "'undeploy'"]),
        (["ps"], 2, ["'ps'", "'list'"]),
        (["status", "-n", "A B"], 2, ["'A B'"]),
        (["list", "-n", 64 * "a"], 2, [64 * "a", " 63 "]),
        (["render", SPEC, "--manifests", "-n", "a.b"], 2, ["'a.b'"]),
        (["stop"], 2, ["'NAME'", "`hvdchart list`"]),
        (["undeploy"], 2, ["'NAME...'", "`hvdchart list`"]),
        (
            ["plan", "train.py", "--workers", "four"],
            2,
            ["--workers", "'four'"],
        ),
        (["plan", "train.py", "--gpus", "65"], 2, ["--gpus", "65", "from 0 to 64"]),
        (["logs", "hvd", "--tail", "-1"], 2, ["--tail", "-1"]),
        (["cancel", "hvd"], 2, ["'cancel'", "'stop'"]),
        (
            ["exec", "hvd", "3", "nvidia-smi", "-l", "1", "-nteam"],
            2,
            ["hvdchart exec hvd 3 -nteam -- nvidia-smi -l 1"],
        ),
        (
            ["deploy", SPEC, "--set", "values.worker.resources.limits.cpu=abc"],
            3,
            ["values.worker.resources.limits.cpu", '"abc"', "500m"],
        ),
    ],
)
def test_failure_exits_with_its_code_and_one_message(
    hvdchart: Command, arguments: list[str | Path], code: int, names: list[str]
) -> None:
    done = hvdchart(*arguments)
    assert (done.code, done.output) == (code, "")
    said = " ".join(done.errors.split())
    assert [name for name in names if name not in said] == []
    assert "Traceback" not in done.errors


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (["render", "--env", "CITY=Köln"], 'value: "Köln"'.encode()),
        (["list"], b"not found: K?ln"),
    ],
    ids=["document", "lines"],
)
def test_characters_that_the_output_encoding_lacks_do_not_end_a_command(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    written: bytes,
) -> None:
    """A document is UTF-8 everywhere, and lines have question marks there."""
    master = {**ENDED_MASTER, "status": {"phase": "Failed", "message": "not found: Köln"}}
    play_run(fake_cluster, FAILED, master)
    script = tmp_path / "train.py"
    script.write_text("pass\n")
    output = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(output, encoding="ascii"))
    more = [script, "--image", "a:1"] if words[0] == "render" else []
    assert hvdchart(words[0], *more, *words[1:]).code == 0
    assert written in output.getvalue()


def every_command(group: Any, *before: str) -> Iterator[tuple[str, ...]]:
    """The words of each command, also of those below another one."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, *before, name)
        else:
            yield *before, name


each_command = pytest.mark.parametrize("words", [*every_command(app.command())], ids=" ".join)


@each_command
def test_help_has_examples_that_are_accepted(hvdchart: Command, words: tuple[str, ...]) -> None:
    """Examples are taken as they stand, up to a pipe or the next command."""
    shown = hvdchart(*words, "-h").output
    match = re.search(r"^ +Examples?:\n((?: {4}.*\n)+)", shown, re.MULTILINE)
    assert match
    assert match[1].split()[: len(words) + 1] == ["hvdchart", *words]
    for line in match[1].splitlines():
        arguments = [*takewhile(lambda word: word not in "|>&&", shlex.split(line)[1:])]
        command: Any = app.command()
        while hasattr(command, "commands"):
            command = command.commands[arguments.pop(0)]
        # A command keeps the names of the option for help that it is first used with.
        settings = app.app.info.context_settings or {}
        command.make_context("hvdchart", arguments, **settings)


@each_command
def test_help_names_exit_codes_of_hvdchart(hvdchart: Command, words: tuple[str, ...]) -> None:
    shown = hvdchart(*words, "-h").output
    codes = " ".join(shown.partition("Exit codes: ")[2].split())
    named = set(re.findall(r"(?:^|; |, )(\d+)\b", codes))
    assert named
    # 2 is Typer's own.
    error_codes = {str(kind.exit_code) for kind in HvdchartError.__subclasses__()}
    assert named <= {"0", "2", "130", *error_codes}


def test_version_is_printed(hvdchart: Command) -> None:
    assert hvdchart("--version").output == f"hvdchart {__version__}\n"


def test_at_most_20_errors_are_printed_and_the_others_counted() -> None:
    wrong = [SpecError(f"a:{line}", "", "wrong", "right") for line in range(1, 22)]
    assert str(SpecError.join(wrong[:20])).endswith("a:20: wrong; expected right")
    assert str(SpecError.join(wrong)).splitlines()[20:] == ["and 1 more errors"]


def test_help_has_each_command_in_a_group_with_a_whole_sentence(hvdchart: Command) -> None:
    shown = hvdchart("--help").output
    names = re.findall(r"^  (\w+)  +[A-Z]", shown, re.MULTILINE)
    group: Any = app.command()
    assert sorted(names) == sorted(group.commands)
    assert "..." not in shown.partition("Options:")[2]


def test_names_of_runs_are_completed(
    hvdchart: Command, fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_run(fake_cluster, DONE, ENDED_MASTER)
    monkeypatch.setenv("_HVDCHART_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "hvdchart status h")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert hvdchart().output.split() == ["hvd"]
