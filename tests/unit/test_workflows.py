"""The workflows have the commands, versions and images of the repository, which GitHub cannot know.

actionlint checks the rest (`make lint`).
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from devtools.docs_gen.image_docs import target_name
from devtools.docs_gen.reference_docs import minors
from devtools.images.catalogue import When, load_catalogue
from devtools.toolchain.tools import HELM_3, HELM_4, module_version

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS: dict[str, Any] = {
    file.stem: YAML(typ="safe").load(file) for file in (GITHUB / "workflows").glob("*.yaml")
}


def matrix(workflow: str, job: str) -> dict[str, list[str]]:
    versions: dict[str, list[str]] = WORKFLOWS[workflow]["jobs"][job]["strategy"]["matrix"]
    return versions


def test_make_targets_and_modules_exist() -> None:
    targets = set(re.findall(r"^([a-z][-a-z0-9]*):", (ROOT / "Makefile").read_text(), re.M))
    jobs = [job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()]
    text = "\n".join(step.get("run", "") for job in jobs for step in job["steps"])
    assert set(re.findall(r"^make ([a-z][-a-z0-9]*)", text, re.M)) <= targets
    modules = set(re.findall(r"python -m ([\w.]+)", text)) - {"pip"}
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []


def test_actions_of_others_are_commits_and_jobs_may_only_read_unless_they_say_so() -> None:
    """A tag can be moved to other code. Dependabot changes the commit and the comment together."""
    for file in (*GITHUB.glob("workflows/*.yaml"), *GITHUB.glob("actions/*/action.yml")):
        for used in re.findall(r"uses: (?!\./)(.*)", file.read_text()):
            pinned = re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used)
            assert pinned, f"{file.name}: {used}: write OWNER/ACTION@COMMIT # vX.Y.Z"
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name
        assert all("timeout-minutes" in job for job in workflow["jobs"].values()), name


def test_chart_is_installed_on_each_kubernetes_and_with_the_pinned_helms() -> None:
    versions = matrix("chart", "install")
    assert [version[1:].rpartition(".")[0] for version in versions["kubernetes"]] == minors()
    assert set(versions["helm"]) == {module_version("tools", helm) for helm in (HELM_3, HELM_4)}
    steps = WORKFLOWS["release"]["jobs"]["chart"]["steps"]
    (setup,) = (step for step in steps if step.get("uses", "").startswith("azure/setup-helm"))
    assert setup["with"]["version"] == module_version("tools", HELM_4)


def test_images_are_built_released_and_proved() -> None:
    images = load_catalogue()
    apart = [name for name, image in images.items() if image.tested is When.SEPARATELY]
    leaves = [name for name in images if name not in apart and images[name].parent]
    assert sorted(matrix("release", "images")["target"]) == sorted(map(target_name, images))
    assert sorted(matrix("images", "bake")["target"]) == sorted(map(target_name, leaves))
    assert sorted(matrix("gpu", "prove")["image"]) == sorted(apart)
