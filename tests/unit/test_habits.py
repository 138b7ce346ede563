"""The files by which people and services find their way: owners, forms, citation, editors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import hvdchart
from devtools.release import tree

ROOT = Path(__file__).resolve().parents[2]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
# What GitHub knows: docs.github.com, "Syntax for GitHub's form schema".
KINDS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


def test_every_file_names_the_same_version() -> None:
    assert set(tree.versions().values()) == {hvdchart.__version__}


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.stem)
def test_form_has_what_github_asks_for(file: Path) -> None:
    form = YAML(typ="safe").load(file)
    assert {"name", "description", "body"} <= form.keys()
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert {part["type"] for part in form["body"]} <= KINDS
    assert all(part["attributes"]["label"] for part in asked)
    ids = [part["id"] for part in asked]
    assert len(ids) == len(set(ids))
    assert any(part.get("validations", {}).get("required") for part in asked)


def test_owners_are_of_folders_that_exist_and_name_nobody() -> None:
    lines = (ROOT / ".github" / "CODEOWNERS").read_text().splitlines()
    assert all(line.startswith("#") for line in lines), "a fork has other people"
    folders = [match[1] for line in lines if (match := re.match(r"# /(\S+)/ ", line))]
    assert len(folders) > 5
    assert [name for name in folders if not (ROOT / name).is_dir()] == []


def test_hooks_before_a_commit_run_what_there_is() -> None:
    (local,) = YAML(typ="safe").load(ROOT / ".pre-commit-config.yaml")["repos"]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for hook in local["hooks"]:
        program, *words = hook["entry"].split()
        assert program in ("make", ".venv/bin/python")
        assert program != "make" or words[-1] in targets


def test_dev_container_is_built_from_the_file_beside_it() -> None:
    file = ROOT / ".devcontainer" / "devcontainer.json"
    settings = json.loads(file.read_text())
    assert (file.parent / settings["build"]["dockerfile"]).is_file()


def test_python_lines_are_as_long_for_editors_as_for_ruff() -> None:
    editors = (ROOT / ".editorconfig").read_text()
    length = re.search(r"\[\*\.py\]\nmax_line_length = (\d+)", editors)
    assert length
    assert f"line-length = {length[1]}" in (ROOT / "pyproject.toml").read_text()
