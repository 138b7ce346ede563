"""The command: output, exit codes, and one message instead of a traceback."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yaml import safe_load as parse_yaml

from hvdchart import __version__
from hvdchart.cli import app
from hvdchart.errors import HvdchartError
from tests.fakes.fixtures import Command

ROOT = Path(__file__).parents[4]
SPEC = ROOT / "values" / "xeon-4.spec.yaml"
GOLDEN = ROOT / "values" / "xeon-4.yaml"


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of specs are given from the root of the checkout."""
    monkeypatch.chdir(ROOT)


@pytest.mark.slow
def test_module_runs_as_a_program_and_reads_standard_input() -> None:
    command = [sys.executable, "-m", "hvdchart", "plan", "-", "-o", "json"]
    with SPEC.open("rb") as spec:
        done = subprocess.run(command, stdin=spec, capture_output=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout)["ranks"] == 8


@pytest.mark.slow
def test_program_exits_with_the_code_of_its_error() -> None:
    command = [sys.executable, "-m", "hvdchart", "render", "none.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith("hvdchart: none.yaml: cannot read the spec")


def test_render_writes_the_same_to_stdout_and_to_a_file(hvdchart: Command, tmp_path: Path) -> None:
    target = tmp_path / "values.yaml"
    shown, written = hvdchart("render", SPEC), hvdchart("render", SPEC, "-w", target)
    assert (shown.code, written.code) == (0, 0)
    assert target.read_text() == shown.output == GOLDEN.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["values.yaml"]


def test_explain_writes_reasons_to_stderr_only(hvdchart: Command) -> None:
    explained = hvdchart("render", SPEC, "--explain")
    assert explained.output == GOLDEN.read_text()
    assert "because" in explained.errors
    assert "tuning" not in explained.errors
    assert "one rank per socket" in " ".join(explained.errors.split())


def test_render_prints_the_plans_warnings_to_stderr(hvdchart: Command) -> None:
    warned = hvdchart("render", SPEC, "--set", "volumes.output={pvc: a}")
    assert warned.code == 0
    assert "ReadWriteMany" not in warned.output
    lines = [line for line in warned.errors.splitlines() if "must be ReadWriteMany" in line]
    assert len(lines) == 1
    assert lines[0].startswith("warning: volumes output are claims")
    quiet = hvdchart("render", SPEC, "--set", "volumes=null", "--set", "train.checkpoints=null")
    assert (quiet.code, quiet.errors) == (0, "")


def test_code_is_part_of_the_values(hvdchart: Command, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('hello')\n")
    done = hvdchart("render", SPEC, "--code", script)
    assert done.code == 0, done.errors
    assert parse_yaml(done.output)["code"] == {"files": {"train.py": "print('hello')\n"}}
    refused = hvdchart("render", SPEC, "--code", tmp_path / "none.py")
    assert (refused.code, refused.output) == (5, "")
    assert "none.py: cannot read the code: " in refused.errors


def test_check_compares_and_writes_nothing(hvdchart: Command, tmp_path: Path) -> None:
    target, missing = tmp_path / "values.yaml", tmp_path / "none.yaml"
    assert hvdchart("render", SPEC, "-w", target).code == 0
    assert hvdchart("render", SPEC, "-w", target, "--check").code == 0
    changed = hvdchart("render", SPEC, "-w", target, "--check", "--set", "nodes.0.count=5")
    assert changed.code == 1
    assert "+  number: 5" in changed.errors
    assert "number: 4" in target.read_text()
    assert hvdchart("render", SPEC, "-w", missing, "--check").code == 1
    assert not missing.exists()


def test_later_specs_and_settings_win(hvdchart: Command, tmp_path: Path) -> None:
    over = tmp_path / "prod.yaml"
    over.write_text("name: prod\n")
    done = hvdchart("plan", "-f", SPEC, "-f", over, "--set", "nodes.0.count=8", "-o", "json")
    plan = json.loads(done.output)
    assert (plan["name"], plan["ranks"], plan["globalBatch"]) == ("prod", 16, 1024)


def test_plan_prints_ranks_threads_and_mount_paths(hvdchart: Command) -> None:
    done = hvdchart("plan", SPEC)
    assert "unet: 8 ranks on 4 workers" in done.output
    assert "20/18/2" in done.output
    assert "mount path" in done.output
    assert "because" not in done.output
    assert "because" in hvdchart("plan", SPEC, "--explain").output


def test_schema_prints_the_published_schema(hvdchart: Command) -> None:
    assert hvdchart("schema").output == (ROOT / "docs" / "spec.schema.json").read_text()


def test_endless_file_is_refused(hvdchart: Command) -> None:
    done = hvdchart("render", "/dev/zero")
    assert (done.code, "too long" in done.errors) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["render", "none.yaml"], 5, "none.yaml: cannot read the spec: No such file"),
        (["render", "values"], 5, "cannot read the spec"),
        (["render", SPEC, "--set", "nodes.0.count=0"], 3, "expected a whole number"),
        (["render", SPEC, "-w", "/proc/none/x"], 5, "/proc/none/x: cannot write"),
        (["render"], 2, "no spec"),
        (["render", SPEC, "--check"], 2, "--check needs --write"),
        (["plan", SPEC, "-o", "xml"], 2, "table, json or yaml"),
        (["tune", SPEC, "--command", "a 'b"], 2, "no closing quotation"),
        (["rendr"], 2, "No such command"),
    ],
)
def test_failure_exits_with_its_code_and_one_message(
    hvdchart: Command, arguments: list[str | Path], code: int, says: str
) -> None:
    done = hvdchart(*arguments)
    assert (done.code, done.output) == (code, "")
    assert says in done.errors
    assert "Traceback" not in done.errors


def test_tables_in_a_pipe_have_one_line_for_each_row(hvdchart: Command, tmp_path: Path) -> None:
    text = SPEC.read_text()
    (tmp_path / "a.spec.yaml").write_text(text.replace("hostPath: /", f"hostPath: /{'long' * 40}/"))
    shown = hvdchart("plan", str(tmp_path / "a.spec.yaml"), "--explain")
    (row,) = [line for line in shown.output.splitlines() if "env.OMP_NUM_THREADS" in line]
    assert row.count("│") == 5
    (warning,) = [line for line in shown.output.splitlines() if line.startswith("warning: volumes")]
    assert warning.endswith("directories")


def every_command(group: Any, *before: str) -> Iterator[tuple[str, ...]]:
    """The words of each command, also of those below another one."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, *before, name)
        else:
            yield *before, name


EVERY_COMMAND = list(every_command(app.command()))


def examples(shown: str) -> list[str]:
    """The command lines in the help of a command."""
    match = re.search(r"^ +Examples?:\n((?: {4}.*\n)+)", shown, re.MULTILINE)
    return [line.strip() for line in match[1].splitlines()] if match else []


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_help_has_examples_and_exit_codes_and_no_names_of_types(
    hvdchart: Command, words: tuple[str, ...]
) -> None:
    shown = hvdchart(*words, "-h").output
    lines = examples(shown)
    assert lines
    assert lines[0].startswith(f"hvdchart {' '.join(words)}")
    assert all(line.startswith("hvdchart ") for line in lines)
    assert not re.search(r"<(path|text|int|int range|file)>|\bTEXT\b|\bINTEGER\b", shown)
    known = {"0", "130", *(str(kind.exit_code) for kind in HvdchartError.__subclasses__())}
    codes = " ".join(shown.partition("Exit codes: ")[2].split())
    named = set(re.findall(r"(?:^|; |, )(\d+)\b", codes))
    assert named
    assert named <= known


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_examples_in_help_are_accepted(hvdchart: Command, words: tuple[str, ...]) -> None:
    """As they stand, up to a pipe or the next command."""
    for line in examples(hvdchart(*words, "-h").output):
        given = shlex.split(line)[1:]
        end = next((i for i, word in enumerate(given) if word in ("|", ">", "&&")), None)
        command: Any = app.command()
        while hasattr(command, "commands"):
            command = command.commands[given.pop(0)]
            end = None if end is None else end - 1
        # A command keeps the names of the option for help that it is first used with.
        command.make_context("hvdchart", given[:end], **(app.app.info.context_settings or {}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "variables", "completed"),
    [
        ("bash", {"COMP_WORDS": "hvdchart sta", "COMP_CWORD": "1"}, ["stack", "status"]),
        ("bash", {"COMP_WORDS": "hvdchart stop --hel", "COMP_CWORD": "2"}, ["--helm"]),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "hvdchart unde"}, ["undeploy"]),
        ("fish", {"_TYPER_COMPLETE_ARGS": "hvdchart unde"}, ["undeploy"]),
    ],
)
def test_shells_complete_commands_and_options(
    shell: str, variables: dict[str, str], completed: list[str]
) -> None:
    """With what `hvdchart --install-completion` tells them to ask for."""
    asks = {"_HVDCHART_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    shown = installed({**asks, **variables})
    words = re.findall(r"(?<![-\w])(?:--)?[a-z]+(?:-[a-z]+)*(?![-\w])", shown)
    assert set(completed) <= set(words), shown


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(shell: str) -> None:
    # Otherwise it is for the shell that has started the tests.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = installed(named, "--show-completion", shell)
    assert f"_HVDCHART_COMPLETE=complete_{shell}" in shown


def installed(variables: dict[str, str], *words: str) -> str:
    """What `hvdchart` prints when pip has installed it under that name."""
    program = "import sys; sys.argv[0] = 'hvdchart'; from hvdchart.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], env={**os.environ, **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_version_is_printed(hvdchart: Command) -> None:
    done = hvdchart("--version")
    assert (done.code, done.output) == (0, f"hvdchart {__version__}\n")


@pytest.mark.parametrize(("words", "shown"), [((), "deploy"), (("templates",), "list")])
def test_without_a_subcommand_the_subcommands_are_printed(
    hvdchart: Command, words: tuple[str, ...], shown: str
) -> None:
    done = hvdchart(*words)
    assert done.code == 2
    assert f"\n  {shown} " in done.output + done.errors
