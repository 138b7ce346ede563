"""The workflows name what the repository has: make targets, modules, versions, targets of bake."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from devtools.docs_gen.bake_file import target_name
from devtools.docs_gen.version_docs import minors
from devtools.images.catalogue import When, load_catalogue
from devtools.toolchain.tools import HELM_3, HELM_4, module_version

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yaml"))
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))
IMAGES = load_catalogue()
HELMS = {module_version("tools", module) for module in (HELM_3, HELM_4)}


def workflow(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(FOLDER / f"{name}.yaml")
    return loaded


def commands(file: Path) -> str:
    """All that the steps of a workflow run."""
    jobs = YAML(typ="safe").load(file)["jobs"].values()
    return "\n".join(step.get("run", "") for job in jobs for step in job["steps"])


def matrix(file: str, job: str) -> dict[str, list[str]]:
    versions: dict[str, list[str]] = workflow(file)["jobs"][job]["strategy"]["matrix"]
    return versions


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_commands_exist(file: Path) -> None:
    text = commands(file)
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][-a-z0-9]*):", makefile, re.M))
    assert set(re.findall(r"^make ([a-z][-a-z0-9]*)", text, re.M)) <= targets
    ours = [name for name in re.findall(r"python -m ([\w.]+)", text) if name != "pip"]
    assert [name for name in ours if importlib.util.find_spec(name) is None] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_jobs_end_and_may_only_read_unless_they_say_so(file: Path) -> None:
    loaded = workflow(file.stem)
    assert loaded["permissions"] == {"contents": "read"}
    unlimited = [name for name, job in loaded["jobs"].items() if "timeout-minutes" not in job]
    assert unlimited == []


def test_chart_is_installed_on_each_kubernetes_and_with_the_pinned_helms() -> None:
    versions = matrix("chart", "install")
    assert [version[1:].rpartition(".")[0] for version in versions["kubernetes"]] == minors()
    assert set(versions["helm"]) == HELMS
    (setup,) = (
        step for step in workflow("release")["jobs"]["chart"]["steps"]
        if step.get("uses", "").startswith("azure/setup-helm")
    )  # fmt: skip
    assert setup["with"]["version"] == module_version("tools", HELM_4)


def test_units_run_on_each_python_from_the_oldest() -> None:
    versions = matrix("checks", "unit")["python"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f">={versions[0]}" == project["requires-python"]
    named = [one.rpartition(" :: ")[2] for one in project["classifiers"]]
    assert named == versions[: len(named)]
    numbers = [int(version.removeprefix("3.")) for version in versions]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_images_are_built_released_and_proved() -> None:
    released = matrix("release", "images")["target"]
    assert sorted(released) == sorted(map(target_name, IMAGES))
    leaves = [
        name for name, image in IMAGES.items() if image.tested is When.ALWAYS and image.parent
    ]
    assert sorted(matrix("images", "bake")["target"]) == sorted(map(target_name, leaves))
    apart = [name for name, image in IMAGES.items() if image.tested is When.SEPARATELY]
    assert sorted(matrix("gpu", "prove")["image"]) == sorted(apart)


def test_settings_of_bake_are_for_targets_that_exist() -> None:
    steps = workflow("chart")["jobs"]["image"]["steps"]
    lines = [line for step in steps for line in step.get("with", {}).get("set", "").splitlines()]
    names = {line.partition(".")[0] for line in lines} - {"*"}
    assert names
    targets = re.findall(r'^target "(.*)"', (ROOT / "docker-bake.hcl").read_text(), re.M)
    assert names <= set(targets)


def test_page_describes_each_workflow() -> None:
    page = (ROOT / "docs" / "release.md").read_text()
    described = re.findall(r"^\| `([\w-]+)` \|", page, re.M)
    assert sorted(described) == [file.stem for file in FILES]


def test_actions_of_others_are_commits_with_their_versions() -> None:
    """A tag can be moved to other code. Dependabot changes the commit and the comment together."""
    commits: dict[str, set[str]] = {}
    for file in (*FILES, *ACTIONS):
        for used in re.findall(r"uses: (?!\./)(.*)", file.read_text()):
            match = re.fullmatch(r"([\w/-]+)@([0-9a-f]{40} # v\d+\.\d+\.\d+)", used)
            assert match, f"{file.name}: {used}: write OWNER/ACTION@COMMIT # vX.Y.Z"
            commits.setdefault(match[1], set()).add(match[2])
    assert len(commits) > 10
    assert {action: pinned for action, pinned in commits.items() if len(pinned) > 1} == {}


def updated_folders(ecosystem: str | None = None) -> set[str]:
    """The folders in which Dependabot updates something."""
    updates = YAML(typ="safe").load(ROOT / ".github" / "dependabot.yaml")["updates"]
    return {
        folder
        for update in updates
        if ecosystem in (None, update["package-ecosystem"])
        for folder in update.get("directories", [update.get("directory")])
    }


def test_dependabot_looks_where_something_is() -> None:
    missing = [name for name in updated_folders() if not (ROOT / name.lstrip("/")).is_dir()]
    assert missing == []


def test_dependabot_updates_the_actions_of_all_files() -> None:
    """`/` means the workflows; an action of our own has to be listed."""
    own = {f"/{file.parent.relative_to(ROOT)}" for file in ACTIONS}
    assert updated_folders("github-actions") == {"/", *own}
