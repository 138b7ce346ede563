"""Scripts in the place of specs, for the commands that take either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.fakes.cluster import FakeCluster
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.played_runs import (
    SPEC,
)

pytestmark = pytest.mark.timeout(120)


def test_plan_takes_a_script_with_the_options_of_run(hvdchart: Command, script: Path) -> None:
    options = ["--workers", "3", "--gpus", "2", "--name", "mine", "-o", "json"]
    done = hvdchart("plan", script, *options, "--", "--epochs", "./3")
    assert done.code == 0, done.errors
    planned = json.loads(done.output)
    assert (planned["name"], planned["workers"], planned["ranks"]) == ("mine", 3, 6)
    assert planned["warnings"][0].startswith("`--cpu` and `--memory` ")


@pytest.mark.parametrize("command", ["render", "doctor"])
def test_commands_that_take_a_script_take_the_options_of_run(
    hvdchart: Command, fake_cluster: FakeCluster, script: Path, command: str
) -> None:
    done = hvdchart(command, script, "--workers", "3", "--image", "A:1")
    assert done.code == 3, done.errors
    assert "--image A:1: got 'A'" in done.errors


def test_plan_of_a_spec_that_names_no_image_is_printed(hvdchart: Command, spec: Path) -> None:
    """`discover` writes such a spec: the numbers come before the image."""
    content = json.loads(spec.read_text())
    del content["image"]
    spec.write_text(json.dumps(content))
    assert hvdchart("plan", spec).code == 0


def test_words_of_a_command_among_the_specs_are_refused_with_the_key(
    hvdchart: Command, spec: Path
) -> None:
    done = hvdchart("deploy", spec, "--", "--epochs", "3")
    assert done.code == 2
    assert "train.command" in done.errors


def test_script_is_measured_by_its_spec(hvdchart: Command, script: Path) -> None:
    done = hvdchart("bench", script)
    assert done.code == 2
    assert "--save-spec" in done.errors


@pytest.mark.parametrize(("command", "instead"), [("plan", "run"), ("dev", "dev")])
def test_folder_without_a_spec_is_refused_with_the_line_for_its_script(
    hvdchart: Command, script: Path, command: str, instead: str
) -> None:
    (script.parent / "train.py").touch()
    done = hvdchart(command, script.parent)
    usual = script.parent / "train.py"
    assert done.code == 5
    assert f"hvdchart {instead} {usual}\n" in done.errors


@pytest.mark.parametrize("command", ["plan", "deploy", "dev"])
def test_a_shell_script_in_place_of_a_spec_is_refused(
    hvdchart: Command, tmp_path: Path, command: str
) -> None:
    line = tmp_path / "start.sh"
    line.write_text("torchrun train.py\n")
    done = hvdchart(command, line)
    assert done.code == 5
    assert f"hvdchart migrate {line}" in done.errors


def test_misspelt_script_of_dev_is_refused_with_the_right_one(
    hvdchart: Command, script: Path
) -> None:
    assert "'My_Train.py'" in hvdchart("dev", script.with_name("My_Tarin.py")).errors


def test_plan_of_a_project_reads_its_code(hvdchart: Command, script: Path) -> None:
    script.write_text("import torch\n")
    train = {"train": {"command": ["python", script.name]}}
    (script.parent / "run.spec.yaml").write_text(json.dumps({**SPEC, **train}))
    done = hvdchart("plan", script.parent, "-o", "json")
    (warning,) = json.loads(done.output)["warnings"]
    assert "torch" in warning


def test_option_of_a_script_is_refused_beside_a_spec(
    hvdchart: Command, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HVDCHART_IMAGE", "team/a:1")
    done = hvdchart("plan", script.parent, "--workers", "3")
    assert done.code == 2
    assert "--workers " in done.errors
    assert "--set sets nodes.0.count" in done.errors
