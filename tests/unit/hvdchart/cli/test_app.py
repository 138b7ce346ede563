"""The command: output, exit codes, and one message instead of a traceback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from yaml import safe_load as parse_yaml

from hvdchart.errors import HvdchartError
from tests.fakes.fixtures import Command

ROOT = Path(__file__).parents[4]
SPEC = ROOT / "values" / "xeon-4.spec.yaml"
GOLDEN = ROOT / "values" / "xeon-4.yaml"


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of specs are given from the root of the checkout."""
    monkeypatch.chdir(ROOT)


def test_module_runs_as_a_program_and_reads_standard_input() -> None:
    command = [sys.executable, "-m", "hvdchart", "plan", "-", "-o", "json"]
    with SPEC.open("rb") as spec:
        done = subprocess.run(command, stdin=spec, capture_output=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout)["ranks"] == 8


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
        (["plan", SPEC, "-o", "xml"], 2, "table or json"),
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


@pytest.mark.parametrize("command", ["deploy", "undeploy", "list", "status", "logs", "events"])
def test_help_has_examples_and_exit_codes_and_no_names_of_types(
    hvdchart: Command, command: str
) -> None:
    shown = hvdchart(command, "-h").output
    assert f"hvdchart {command}" in shown.partition("Example")[2]
    assert "Exit codes: 0 " in shown
    assert not re.search(r"<(path|text|int|int range|file)>|\bTEXT\b|\bINTEGER\b", shown)


def test_exit_codes_in_help_are_those_of_the_errors(hvdchart: Command) -> None:
    known = {"0", "130", *(str(kind.exit_code) for kind in HvdchartError.__subclasses__())}
    for command in ("deploy", "undeploy", "list", "status", "logs", "events"):
        codes = hvdchart(command, "-h").output.partition("Exit codes: ")[2]
        named = set(re.findall(r"(?:^|; |, )\s*(\d+)\b", codes))
        assert named
        assert named <= known, command
