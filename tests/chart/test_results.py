"""Storing the results: a sidecar of the master."""

from __future__ import annotations

import pytest

from hvdchart.values.merge import merge_values
from tests.chart.render import IMAGE, Manifest, Values, one, pod_spec, refusal, render, run_settings
from tests.chart.test_identity import hashes

CLAIM: Values = {
    "volumes": [{"name": "out", "persistentVolumeClaim": {"claimName": "out"}}],
    "volumeMounts": [{"name": "out", "mountPath": "/output"}],
    "worker": {"env": [{"name": "OUTPUT_PATH", "value": "/output/run"}]},
}
COMMAND: Values = {"results": {"command": ["rclone", "copy", ".", "bucket:run"]}}


def sidecar(values: Values) -> Manifest:
    """The master's only init container."""
    manifests = render(merge_values(CLAIM, values))
    (container,) = pod_spec(one(manifests, "Job"))["initContainers"]
    assert "initContainers" not in pod_spec(one(manifests, "StatefulSet"))
    assert one(manifests, "Pod")["spec"]["initContainers"] == [], "helm test stores nothing"
    manifest: Manifest = container
    return manifest


def test_results_are_stored_by_a_sidecar_of_the_master() -> None:
    container = sidecar(COMMAND)
    assert container["command"][:2] == ["sh", "/horovod/bin/results.sh"]
    assert container["command"][2:] == COMMAND["results"]["command"]
    # Its end, and how it ends, do not concern the Job.
    assert container["restartPolicy"] == "Always"
    assert container["image"].startswith(f"{IMAGE}:")
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    assert env["RESULTS_PATH"] == "/output/run"
    assert CLAIM["volumeMounts"][0] in container["volumeMounts"]
    assert run_settings(render(merge_values(CLAIM, COMMAND)))["results"] == {
        "timeoutSeconds": 3600,
        "onFailure": False,
    }


def test_master_without_results_to_store_knows_of_none() -> None:
    manifests = render(CLAIM)
    assert run_settings(manifests)["results"] == {}
    assert "initContainers" not in pod_spec(one(manifests, "Job"))


def test_sidecar_has_an_image_and_variables_of_its_own() -> None:
    key = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "key"}}}
    own = {"image": {"repository": "rclone/rclone", "tag": "1.76"}, "env": [key]}
    container = sidecar(
        merge_values(COMMAND, {"results": own, "master": {"image": {"tag": "other"}}})
    )
    assert container["image"] == "rclone/rclone:1.76"
    assert key in container["env"]
    inherited = sidecar(merge_values(COMMAND, {"master": {"image": {"tag": "other"}}}))
    assert inherited["image"] == f"{IMAGE}:other"


def test_where_results_are_stored_is_not_what_is_trained() -> None:
    plain, stored = (hashes(render(merge_values(CLAIM, values))) for values in ({}, COMMAND))
    assert plain[0] == stored[0]
    assert plain[1] != stored[1]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"worker": {"env": []}}, ["results.path is empty", "OUTPUT_PATH"]),
        ({"results": {"path": "/elsewhere"}}, ['"/elsewhere"', "volumeMounts"]),
        ({"volumes": [{"name": "out", "emptyDir": {}}]}, ["emptyDir", "each pod has its own"]),
        ({"results": {"command": [], "onFailure": True}}, ["onFailure", "command is empty"]),
        ({"results": {"env": [{"name": "RESULTS_PATH", "value": "x"}]}}, ["RESULTS_PATH"]),
        ({"master": {"initContainers": [{"name": "results"}]}}, ["results", "rename yours"]),
    ],
)
def test_impossible_settings_of_results_are_refused(values: Values, words: list[str]) -> None:
    message = refusal(merge_values(merge_values(CLAIM, COMMAND), values))
    for word in words:
        assert word in message
