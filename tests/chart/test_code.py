"""The user's code in the values: a ConfigMap that only the master mounts."""

from __future__ import annotations

import json

from tests.chart.render import Manifest, Values, of_kind, one, render, run_settings

SCRIPT = "print('hello')\n"


def code_config_maps(manifests: list[Manifest]) -> list[Manifest]:
    return [
        item for item in of_kind(manifests, "ConfigMap") if "-code-" in item["metadata"]["name"]
    ]


def test_single_script_is_the_command_and_only_the_master_mounts_it() -> None:
    manifests = render({"code": {"files": {"train.py": SCRIPT}}})
    assert run_settings(manifests)["args"] == ["python3", "train.py"]
    (config_map,) = code_config_maps(manifests)
    assert (config_map["data"], config_map["immutable"]) == ({"train.py": SCRIPT}, True)
    name = config_map["metadata"]["name"]
    assert name in json.dumps(one(manifests, "Job"))
    assert name not in json.dumps(one(manifests, "StatefulSet"))


def test_command_of_the_values_wins_over_the_single_script() -> None:
    values: Values = {"code": {"files": {"train.py": SCRIPT}}, "master": {"args": ["python", "-u"]}}
    assert run_settings(render(values))["args"] == ["python", "-u"]


def test_name_without_its_backslash_is_the_same_file() -> None:
    """A shell removes the backslash of an unquoted `code.files.train\\.py`."""
    quoted = render({"code": {"files": {"train.v2.py": SCRIPT}}})
    unquoted = render({"code": {"files": {"train": {"v2": {"py": SCRIPT}}}}})
    assert code_config_maps(quoted) == code_config_maps(unquoted)


def test_changed_code_is_another_run_on_the_same_workers() -> None:
    first, second = (
        render({"code": {"files": {"train.py": text}}}) for text in (SCRIPT, "print('other')\n")
    )
    # A changed pod template would replace the workers.
    assert one(first, "StatefulSet")["spec"] == one(second, "StatefulSet")["spec"]
    assert one(first, "Job")["metadata"]["name"] != one(second, "Job")["metadata"]["name"]
    assert run_settings(first)["code"] != run_settings(second)["code"]


def test_requirements_are_installed_unless_they_are_ignored() -> None:
    code = {"files": {"train.py": SCRIPT, "requirements.txt": "einops"}}
    values: Values = {"code": code, "master": {"args": ["python3", "train.py"]}}
    assert run_settings(render(values))["requirements"] is True
    values["code"] = {**code, "requirements": "Ignore"}
    assert run_settings(render(values))["requirements"] is False


def test_archive_is_binary_data() -> None:
    # base64 of coreutils wraps its lines.
    values: Values = {"code": {"archive": "H4sIAA\nAA\n"}, "master": {"args": ["python", "a.py"]}}
    (config_map,) = code_config_maps(render(values))
    assert config_map["binaryData"] == {"archive.tgz": "H4sIAAAA"}
