"""The workflows have the commands, versions and images of the repository, which GitHub cannot know.

`make lint` checks their form.
"""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from devtools.common.repository import DOCS, ROOT
from devtools.docs_gen.image_docs import target_name
from devtools.docs_gen.reference_docs import kubernetes_minors
from devtools.toolchain.tools import HELM_3, HELM_4, module_version
from images.builder.catalogue import When, load_catalogue

GITHUB = ROOT / ".github"
WORKFLOWS: dict[str, Any] = {
    file.stem: YAML(typ="safe").load(file) for file in (GITHUB / "workflows").glob("*.yaml")
}
# OWNER/NAME:TAG@DIGEST
IMAGE = re.compile(r"[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}")


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


def test_jobs_may_only_read_unless_they_say_so() -> None:
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name
        assert all("timeout-minutes" in job for job in workflow["jobs"].values()), name


def test_images_of_others_are_digests() -> None:
    """A tag can be moved to another image. Bases of our images are in images/versions.yaml."""
    jobs = [job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()]
    dockerfile = (ROOT / ".devcontainer/Dockerfile").read_text()
    bases = YAML(typ="safe").load(ROOT / "images/versions.yaml")["bases"]
    used = [job["container"]["image"] for job in jobs if "container" in job]
    # Dependabot changes the Dockerfile alone.
    assert used == re.findall(r"^FROM (\S+)$", dockerfile, re.M)
    used += [f"kindest/node:{version}" for version in matrix("chart", "install")["kubernetes"]]
    used += bases.values()
    for job in jobs:
        used += re.findall(r"(?:image|generator)=(\S+)", str(job["steps"]).replace("'", " "))
    assert [name for name in used if not IMAGE.fullmatch(name)] == []


def publishing() -> Iterator[tuple[str, dict[str, Any]]]:
    """The jobs that make what is published, each with its name."""
    for workflow in ("release", "docs"):
        yield from WORKFLOWS[workflow]["jobs"].items()


def test_package_names_each_python_of_the_checks_that_has_run() -> None:
    page = (DOCS / "compatibility.md").read_text("utf-8")
    never_run = re.findall(r"^\| Python (\S+) \|", page, re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [text.rpartition(" :: ")[2] for text in project["classifiers"]]
    assert named == [
        python for python in matrix("checks", "unit")["python"] if python not in never_run
    ]
    assert project["requires-python"] == f">={named[0]}"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_failed_program_of_a_pipe_fails_the_step(name: str) -> None:
    """GitHub starts bash with pipefail only where a workflow asks for bash."""
    assert WORKFLOWS[name]["defaults"] == {"run": {"shell": "bash"}}


def test_page_names_the_files_for_which_a_workflow_runs() -> None:
    page = (DOCS / "release.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| `([\w-]+)` \|.*\| (.*) \|$", page, re.M))
    assert listed.keys() == WORKFLOWS.keys()
    for name, workflow in WORKFLOWS.items():
        events = [event for event in workflow["on"].values() if isinstance(event, dict)]
        files = {path.removesuffix("**") for event in events for path in event.get("paths", [])}
        named = {*re.findall(r"`([^`=]+)`", listed[name])} - {"main", "v*"}
        assert named == files - {f".github/workflows/{name}.yaml"}, name


def test_what_is_published_is_made_without_a_cache() -> None:
    """A cache holds what another run has written, which would be signed as built here."""
    for name, job in publishing():
        for step in job["steps"]:
            action = step.get("uses", "").partition("@")[0]
            options = step.get("with", {})
            assert action != "actions/cache", name
            if action == "./.github/actions/setup":
                assert options["cache"] == "", name
            if action == "docker/setup-buildx-action":
                assert options["cache-binary"] is False, name
                assert "image=" in options["driver-opts"], name
            assert "type=gha" not in str(options), name


def test_setup_restores_no_cache_where_none_is_named() -> None:
    action = YAML(typ="safe").load(GITHUB / "actions/setup/action.yml")
    for step in action["runs"]["steps"]:
        if step.get("uses", "").startswith("actions/cache@"):
            assert step["if"] == "inputs.cache != ''"
        # setup-go keeps what it compiles unless it is told not to.
        elif step.get("uses", "").startswith("actions/setup-go@"):
            assert step["with"]["cache"] == "${{ inputs.cache != '' }}"
        else:
            assert "cache" not in step.get("with", {})


def test_what_signs_and_lists_a_release_cannot_change_by_itself() -> None:
    """BuildKit takes the newest scanner for `sbom: true`, and the action any cosign it is told."""
    steps = [step for _, job in publishing() for step in job["steps"]]
    baked = [step["with"]["sbom"] for step in steps if "bake-action@" in step.get("uses", "")]
    assert baked
    assert all(IMAGE.fullmatch(sbom.removeprefix("generator=")) for sbom in baked)
    # The commit of the action has the version of cosign, and its checksums.
    cosign = [step for step in steps if "cosign-installer@" in step.get("uses", "")]
    assert cosign
    assert not any("with" in step for step in cosign)


def test_each_provenance_is_carried_to_the_page_of_the_release() -> None:
    jobs = WORKFLOWS["release"]["jobs"]
    carried = []
    for job in jobs.values():
        steps = job["steps"]
        for number, attest in enumerate(steps):
            if "attest-build-provenance@" not in str(attest):
                continue
            output = f"steps.{attest['id']}.outputs.bundle-path"
            (copied,) = (step["run"] for step in steps[number:] if output in str(step.get("env")))
            file = Path(copied.split()[-1])
            uploads = [step for step in steps[number:] if "upload-artifact@" in str(step)]
            (artifact,) = (
                step["with"]["name"]
                for step in uploads
                if Path(step["with"]["path"]) in (file, file.parent)
            )
            carried.append((artifact, file.name))
    assert len(carried) == 2
    *downloads, publish = jobs["publish"]["steps"]
    folders = {step["with"]["name"]: step["with"]["path"] for step in downloads if "with" in step}
    published = publish["run"].split()
    for artifact, name in carried:
        assert f"{folders[artifact]}/*{''.join(Path(name).suffixes)}" in published


def test_only_a_commit_of_main_is_released() -> None:
    jobs = WORKFLOWS["release"]["jobs"]
    (checkout, *_) = jobs["package"]["steps"]
    assert checkout["with"]["fetch-depth"] == 0
    commands = "\n".join(step.get("run", "") for step in jobs["package"]["steps"])
    assert 'devtools.release check "$GITHUB_REF_NAME" --branch origin/main' in commands
    for name, job in jobs.items():
        before = job.get("needs", [])
        assert name == "package" or before, f"{name} does not wait for the check"
        writes = [right for right in job.get("permissions", {}).values() if right == "write"]
        assert not writes or "environment" in job, f"{name}: no environment, so no rule for tags"


def test_a_release_is_checked_as_each_change_is() -> None:
    """The workflow of the checks may not have ended for the commit of a tag."""
    jobs = WORKFLOWS["checks"]["jobs"]
    checks = [jobs[name]["steps"][-1]["run"] for name in ("lint", "unit", "chart")]
    package = [step.get("run") for step in WORKFLOWS["release"]["jobs"]["package"]["steps"]]
    assert set(checks) <= set(package)


def test_a_release_follows_a_tag_alone() -> None:
    """Whoever may start a workflow by hand could change it on a branch, with its rights."""
    # YAML 1.1 reads the key `on` as true, and 1.2 does not.
    assert WORKFLOWS["release"]["on"] == {"push": {"tags": ["v*"]}}


def test_rehearsal_builds_what_a_release_has_and_may_write_nothing() -> None:
    rehearsal = WORKFLOWS["rehearse"]
    assert rehearsal["permissions"] == {"contents": "read"}
    assert not any(
        "permissions" in job or "environment" in job for job in rehearsal["jobs"].values()
    )
    assert matrix("rehearse", "images") == matrix("release", "images")

    def release_commands(workflow: str) -> set[str]:
        jobs = WORKFLOWS[workflow]["jobs"].values()
        runs = [step.get("run", "") for job in jobs for step in job["steps"]]
        lines = [line for run in runs for line in run.splitlines()]
        return {line for line in lines if line.startswith("make release")}

    assert release_commands("rehearse") == release_commands("release")


def test_chart_is_installed_on_each_kubernetes_and_with_the_pinned_helms() -> None:
    versions = matrix("chart", "install")
    tags = [version.partition("@")[0] for version in versions["kubernetes"]]
    assert [tag[1:].rpartition(".")[0] for tag in tags] == kubernetes_minors()
    assert set(versions["helm"]) == {module_version("tools", helm) for helm in (HELM_3, HELM_4)}


def test_images_are_built_released_and_tested() -> None:
    images = load_catalogue()
    apart = [name for name, image in images.items() if image.tested is When.SEPARATELY]
    leaves = [name for name in images if name not in apart and images[name].parent]
    assert sorted(matrix("release", "images")["target"]) == sorted(map(target_name, images))
    assert sorted(matrix("images", "bake")["target"]) == sorted(map(target_name, leaves))
    assert sorted(matrix("gpu", "test")["image"]) == sorted(apart)


def test_openvex_reports_vulnerabilities_of_each_image() -> None:
    document = json.loads((ROOT / ".vex/horovod.openvex.json").read_text())
    assert {"@context", "@id", "author", "timestamp", "version"} <= document.keys()
    assert all(statement["vulnerability"]["name"] for statement in document["statements"])
    images = {image.reference.partition(":")[0]: image for image in load_catalogue().values()}
    versions = {image.versions["horovod"] for image in images.values()}
    for statement in document["statements"]:
        assert statement["status"] == "affected"
        assert statement["action_statement"]
        products = {item["@id"]: item["subcomponents"] for item in statement["products"]}
        assert products.keys() == {f"pkg:oci/{name}" for name in images}
        parts = {part["@id"] for product in products.values() for part in product}
        assert parts == {f"pkg:pypi/horovod@{version}" for version in versions}
