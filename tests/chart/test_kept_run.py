"""A newer chart and a run that is in the cluster already: a real API server, both Helms."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from devtools.toolchain.tools import tool
from hvdchart.values.merge import merge_values
from tests.chart.render import CHART, Values
from tests.chart.test_identity import make_newer_chart
from tests.e2e.cluster import Namespace

# Suspended, so that neither pods nor images are needed.
RUN: Values = {"master": {"args": ["python", "train.py"], "suspend": True}, "cleanup": "Never"}
HELMS = ("helm3", "helm4")
KINDS = "jobs,statefulsets"


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_newer_chart(tmp_path_factory.mktemp("chart") / "newer")


def upgrade(place: Namespace, version: str, chart: Path, values: Values) -> str:
    """Upgrade or install, which must succeed; the notes."""
    done = place.helm("upgrade", "--install", "hvd", str(chart), values=values, version=version)
    assert done.returncode == 0, done.stderr
    return done.stdout


def written(place: Namespace) -> dict[str, Any]:
    """The Job and the StatefulSet by uid, with the number of times that their spec was written."""
    items = place.get(KINDS)["items"]
    assert len(items) == 2
    return {item["metadata"]["uid"]: item["metadata"]["generation"] for item in items}


def end(place: Namespace, *conditions: str) -> None:
    """Let the run's Job have ended."""
    now = {"startTime": "2026-01-01T10:00:00Z"}
    if conditions[-1] == "Complete":
        now["completionTime"] = "2026-01-01T10:01:00Z"
    ended = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T10:01:00Z"}
        for kind in conditions
    ]
    patch = json.dumps({"status": {**now, "conditions": ended}})
    place.kubectl("patch", "job", place.job("hvd"), "--subresource=status", "-p", patch)


@pytest.mark.parametrize("version", HELMS)
def test_newer_chart_leaves_a_run_that_goes_on_as_it_is(
    place: Namespace, newer: Path, version: str
) -> None:
    upgrade(place, version, CHART, RUN)
    before = written(place)
    mounted = mounted_files(place)
    notes = upgrade(place, version, newer, merge_values(RUN, {"metrics": {"enabled": True}}))
    assert written(place) == before
    assert "The next run will use a newer chart." in notes
    assert mounted_files(place) == mounted
    files = [name for each in mounted for name in place.get("configmap", each)["data"]]
    assert "mesh.py" in files, "the files of the run's own chart"
    labels = place.get("job", place.job("hvd"))["metadata"]["labels"]
    assert labels["helm.sh/chart"].startswith("horovod-1")
    # The number of retries, the deadline and the time to live apply to the run as it is.
    longer = {"master": {"backoffLimit": 9, "activeDeadlineSeconds": 99}}
    upgrade(place, version, newer, merge_values(RUN, longer))
    assert place.get("job", place.job("hvd"))["spec"]["backoffLimit"] == 9
    assert before.keys() == written(place).keys()

    upgrade(place, version, newer, merge_values(RUN, {"master": {"args": ["python", "other.py"]}}))
    assert before.keys() & written(place).keys() == before.keys() - {job_uid(before, place)}
    assert not mounted & mounted_files(place), "the next run uses the newer chart"
    config_maps = [item["metadata"]["name"] for item in place.get("configmaps")["items"]]
    assert not mounted & set(config_maps)


@pytest.mark.parametrize("version", HELMS)
def test_newer_chart_or_other_settings_do_not_repeat_a_finished_run(
    place: Namespace, newer: Path, version: str
) -> None:
    upgrade(place, version, CHART, RUN)
    first = place.job("hvd")
    going = merge_values(RUN, {"master": {"suspend": False}})
    end(place, "SuccessCriteriaMet", "Complete")
    notes = upgrade(place, version, newer, going)
    assert place.job("hvd") == first
    assert f"This run finished under the Job {first}: nothing was started." in notes
    assert "--set master.generation=2" in notes
    upgrade(
        place, version, newer, merge_values(RUN, {"master": {"resources": {"limits": {"cpu": 1}}}})
    )
    assert place.job("hvd") == first
    upgrade(place, version, newer, merge_values(RUN, {"master": {"generation": 2}}))
    assert first not in place.jobs("hvd"), "a repetition was asked for"


def test_failed_run_is_tried_again_with_other_settings_only(place: Namespace, newer: Path) -> None:
    upgrade(place, "helm4", CHART, RUN)
    first = place.job("hvd")
    end(place, "FailureTarget", "Failed")
    upgrade(place, "helm4", newer, RUN)
    assert place.job("hvd") == first
    upgrade(place, "helm4", newer, merge_values(RUN, {"shm": {"sizeLimit": "8Gi"}}))
    assert first not in place.jobs("hvd")


def test_manifests_of_a_newer_chart_make_another_job_of_the_same_run(
    place: Namespace, newer: Path
) -> None:
    """A GitOps tool renders without the cluster: the record then says that the run has ended."""
    for chart in (CHART, newer):
        command = [str(tool("helm4")), "template", "hvd", str(chart), "--no-hooks", "--values", "-"]
        done = place.call(*command, input=json.dumps({**RUN, "image": {"repository": "app"}}))
        assert done.returncode == 0, done.stderr
        place.kubectl("apply", "--server-side", "--filename", "-", input=done.stdout)
    jobs = [place.get("job", name) for name in place.jobs("hvd")]
    assert len(jobs) == 2
    assert len({job["metadata"]["labels"]["horovod/run"] for job in jobs}) == 1


def mounted_files(place: Namespace) -> set[str]:
    """The ConfigMaps that the Job's and the StatefulSet's pods mount as the chart's files."""
    return {
        source["configMap"]["name"]
        for item in place.get(KINDS)["items"]
        for volume in item["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "files"
        for source in volume["projected"]["sources"]
    }


def job_uid(before: dict[str, Any], place: Namespace) -> str:
    """The uid among those before that is no longer there: the earlier Job's."""
    (gone,) = before.keys() - written(place).keys()
    return gone


@pytest.mark.parametrize("version", HELMS)
def test_helm_makes_the_keys_once_and_leaves_an_empty_secret_to_the_master(
    place: Namespace, version: str
) -> None:
    def keys() -> dict[str, str] | None:
        data: dict[str, str] | None = place.get("secret", "hvd-ssh").get("data")
        return data

    # Helm takes this account as the sign that it can read the cluster.
    place.kubectl("wait", "serviceaccount/default", "--for=create", "--timeout=180s")
    upgrade(place, version, CHART, RUN)
    first = keys()
    assert first is not None
    assert first.keys() == {"user-key", "host-key"}
    upgrade(place, version, CHART, RUN)
    assert keys() == first

    # As a renderer without access to the cluster leaves it: the master may make the keys just now.
    empty = json.dumps([{"op": "remove", "path": "/data"}])
    place.kubectl("patch", "secret", "hvd-ssh", "--type=json", f"--patch={empty}")
    upgrade(place, version, CHART, RUN)
    assert keys() is None
    made = {name: base64.b64encode(name.encode()).decode() for name in first}
    place.kubectl(
        "patch", "secret", "hvd-ssh", "--type=merge", f"--patch={json.dumps({'data': made})}"
    )
    upgrade(place, version, CHART, RUN)
    assert keys() == made

    upgrade(place, version, CHART, {**RUN, "ssh": {"generation": 2}})
    other = place.get("secret", "hvd-ssh-2")["data"]
    assert not set(other.values()) & {*made.values(), *first.values()}


def wait_for_default_account(place: Namespace) -> None:
    """The chart looks for other objects only where it finds this one."""
    place.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=180s")


def test_selector_of_an_earlier_version_is_refused_with_the_remedy(place: Namespace) -> None:
    """Before 0.3.0 the instance was fullnameOverride, and Kubernetes never changes a selector."""
    labels = {"app.kubernetes.io/name": "horovod", "app.kubernetes.io/instance": "lab"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    old = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "lab-worker"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod},
    }
    place.kubectl("apply", "--filename", "-", input=json.dumps(old))
    wait_for_default_account(place)
    values = {**RUN, "fullnameOverride": "lab"}
    done = place.helm("upgrade", "--install", "hvd", str(CHART), values=values, version="helm4")
    assert done.returncode != 0
    for word in ('"lab-worker"', 'instance "lab"', f"--namespace {place.name} delete statefulset"):
        assert word in done.stderr
    place.kubectl("delete", "statefulset", "lab-worker")
    upgrade(place, "helm4", CHART, values)


def test_missing_service_account_of_the_workers_is_refused(place: Namespace) -> None:
    wait_for_default_account(place)
    values = {**RUN, "worker": {"serviceAccount": {"name": "reader"}}}
    done = place.helm("install", "hvd", str(CHART), values=values, version="helm4")
    assert done.returncode != 0
    for word in ('worker.serviceAccount.name is "reader"', place.name, "serviceAccount.create"):
        assert word in done.stderr
