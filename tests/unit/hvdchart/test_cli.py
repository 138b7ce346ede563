"""The command as a person runs it: output, exit codes, one message and never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SPEC = ROOT / "values" / "xeon-4.spec.yaml"


def hvdchart(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hvdchart", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_render_writes_to_stdout_and_to_a_file(tmp_path: Path) -> None:
    target = tmp_path / "values.yaml"
    shown, written = hvdchart("render", SPEC), hvdchart("render", SPEC, "-o", target)
    assert (shown.returncode, written.returncode) == (0, 0)
    assert target.read_text() == shown.stdout != ""
    assert [path.name for path in tmp_path.iterdir()] == ["values.yaml"]


def test_explain_does_not_disturb_stdout() -> None:
    plain, explained = hvdchart("render", SPEC), hvdchart("render", SPEC, "--explain")
    assert explained.stdout == plain.stdout
    assert "because" in explained.stderr


def test_check(tmp_path: Path) -> None:
    target = tmp_path / "values.yaml"
    assert hvdchart("render", SPEC, "-o", target).returncode == 0
    assert hvdchart("render", SPEC, "-o", target, "--check").returncode == 0
    changed = hvdchart("render", SPEC, "-o", target, "--check", "--set", "nodes.0.count=5")
    assert changed.returncode == 1
    assert "+  number: 5" in changed.stderr
    assert "number: 4" in target.read_text()
    missing = hvdchart("render", SPEC, "-o", tmp_path / "none.yaml", "--check")
    assert missing.returncode == 1
    assert not (tmp_path / "none.yaml").exists()


def test_overlays_in_order(tmp_path: Path) -> None:
    over = tmp_path / "prod.yaml"
    over.write_text("name: prod\n")
    done = hvdchart("plan", "-f", SPEC, "-f", over, "--set", "nodes.0.count=8", "-o", "json")
    found = json.loads(done.stdout)
    assert (found["name"], found["ranks"], found["globalBatch"]) == ("prod", 16, 1024)


def test_plan_table_has_the_numbers() -> None:
    done = hvdchart("plan", SPEC)
    assert "unet: 8 ranks on 4 workers" in done.stdout
    assert "20/18/2" in done.stdout


def test_a_spec_from_standard_input() -> None:
    command = [sys.executable, "-m", "hvdchart", "plan", "-", "-o", "json"]
    with SPEC.open("rb") as spec:
        done = subprocess.run(command, stdin=spec, capture_output=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout)["ranks"] == 8


def test_an_endless_file_is_not_read_to_its_end() -> None:
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
def test_what_goes_wrong(arguments: list[str | Path], code: int, says: str) -> None:
    done = hvdchart(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
