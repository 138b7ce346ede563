"""The command: output, exit codes, and one message instead of a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hvdchart.cli.app import main

ROOT = Path(__file__).parents[4]
SPEC = ROOT / "values" / "xeon-4.spec.yaml"
GOLDEN = ROOT / "values" / "xeon-4.yaml"


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def hvdchart(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in this process, where it starts 20 times as fast as in one of its own."""

    def run(*arguments: str | Path) -> Done:
        monkeypatch.chdir(ROOT)
        monkeypatch.setattr(sys, "argv", ["hvdchart", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        output = capsys.readouterr()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Done(code or 0, output.out, output.err)

    return run


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
    shown, written = hvdchart("render", SPEC), hvdchart("render", SPEC, "-o", target)
    assert (shown.returncode, written.returncode) == (0, 0)
    assert target.read_text() == shown.stdout == GOLDEN.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["values.yaml"]


def test_explain_writes_reasons_to_stderr_only(hvdchart: Command) -> None:
    explained = hvdchart("render", SPEC, "--explain")
    assert explained.stdout == GOLDEN.read_text()
    assert "because" in explained.stderr
    assert "tuning" not in explained.stderr
    assert "one rank per socket" in " ".join(explained.stderr.split())


def test_check_compares_and_writes_nothing(hvdchart: Command, tmp_path: Path) -> None:
    target, missing = tmp_path / "values.yaml", tmp_path / "none.yaml"
    assert hvdchart("render", SPEC, "-o", target).returncode == 0
    assert hvdchart("render", SPEC, "-o", target, "--check").returncode == 0
    changed = hvdchart("render", SPEC, "-o", target, "--check", "--set", "nodes.0.count=5")
    assert changed.returncode == 1
    assert "+  number: 5" in changed.stderr
    assert "number: 4" in target.read_text()
    assert hvdchart("render", SPEC, "-o", missing, "--check").returncode == 1
    assert not missing.exists()


def test_later_specs_and_settings_win(hvdchart: Command, tmp_path: Path) -> None:
    over = tmp_path / "prod.yaml"
    over.write_text("name: prod\n")
    done = hvdchart("plan", "-f", SPEC, "-f", over, "--set", "nodes.0.count=8", "-o", "json")
    plan = json.loads(done.stdout)
    assert (plan["name"], plan["ranks"], plan["globalBatch"]) == ("prod", 16, 1024)


def test_plan_prints_ranks_threads_and_mount_paths(hvdchart: Command) -> None:
    done = hvdchart("plan", SPEC)
    assert "unet: 8 ranks on 4 workers" in done.stdout
    assert "20/18/2" in done.stdout
    assert "mount path" in done.stdout
    assert "because" not in done.stdout
    assert "because" in hvdchart("plan", SPEC, "--explain").stdout


def test_schema_prints_the_published_schema(hvdchart: Command) -> None:
    assert hvdchart("schema").stdout == (ROOT / "docs" / "spec.schema.json").read_text()


def test_endless_file_is_refused(hvdchart: Command) -> None:
    done = hvdchart("render", "/dev/zero")
    assert (done.returncode, "too long" in done.stderr) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["render", "none.yaml"], 5, "none.yaml: cannot read the spec: No such file"),
        (["render", "values"], 5, "cannot read the spec"),
        (["render", SPEC, "--set", "nodes.0.count=0"], 3, "expected a whole number"),
        (["render", SPEC, "-o", "/proc/none/x"], 5, "/proc/none/x: cannot write"),
        (["render"], 2, "no spec"),
        (["render", SPEC, "--check"], 2, "--check needs --output"),
        (["plan", SPEC, "-o", "xml"], 2, "table or json"),
        (["rendr"], 2, "No such command"),
    ],
)
def test_failure_exits_with_its_code_and_one_message(
    hvdchart: Command, arguments: list[str | Path], code: int, says: str
) -> None:
    done = hvdchart(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
