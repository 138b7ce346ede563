"""init, templates and config on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from hvdchart.project.templates import TEMPLATES
from tests.fakes.fixtures import Command


def test_init_writes_a_project_that_renders(
    hvdchart: Command, tmp_path: Path, programs: Path
) -> None:
    folder = tmp_path / "mine"
    done = hvdchart("init", "mine", "--template", "benchmark", "--folder", folder)
    assert (done.code, len(done.output.splitlines())) == (0, 5)
    assert done.errors == f"next: cd {folder} && hvdchart deploy run.spec.yaml --code .\n"
    rendered = hvdchart("render", folder / "run.spec.yaml", "--code", folder)
    assert rendered.code == 0, rendered.errors
    assert "archive: " in rendered.output
    again = hvdchart("init", "mine", "--folder", folder)
    assert again.code == 5
    unknown = hvdchart("init", "other", "--template", "none")
    assert unknown.code == 2
    assert "must be one of benchmark, keras, unet, pytorch" in unknown.errors


def test_templates_are_listed(hvdchart: Command) -> None:
    lines = hvdchart("templates", "list").output.splitlines()
    assert [line.split()[0] for line in lines] == list(TEMPLATES)
    documents = json.loads(hvdchart("templates", "list", "-o", "json").output)
    assert [each["name"] for each in documents] == list(TEMPLATES)


def test_config_reads_and_changes_a_spec(hvdchart: Command, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    hvdchart("init", "mine", "--folder", folder)
    spec = folder / "run.spec.yaml"
    before = spec.read_text()
    assert hvdchart("config", spec, "get", "nodes.0.count", "name").output == "2\nmine\n"
    assert hvdchart("config", spec, "set", "nodes.0.count=4").code == 0
    assert spec.read_text() == before.replace("count: 2 ", "count: 4 ")
    assert "nodes.0.count=4\n" in hvdchart("config", spec, "list").output
    assert hvdchart("config", spec, "unset", "nodes.0.shared").code == 0
    assert "shared" not in spec.read_text()
    wrong = hvdchart("config", spec, "set", "nodes.0.count=-1")
    assert wrong.code == 3
    assert "nodes[0].count" in wrong.errors


def test_config_without_sense_is_refused(hvdchart: Command, tmp_path: Path) -> None:
    for words in (("list", "a"), ("get",), ("set",), ("change", "a=1")):
        assert hvdchart("config", tmp_path / "spec", *words).code == 2
    assert hvdchart("config", tmp_path / "none", "list").code == 5
