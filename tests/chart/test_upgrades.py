"""Upgrades of a release, against a real API server and with both Helms."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from devtools.toolchain.tools import tool
from hvdchart.values.merge import merge_values
from tests.chart.render import CHART, Values, pod_spec
from tests.chart.test_data import STAGING, on_disk
from tests.e2e.cluster import HELMS, Namespace

# Suspended, so that neither pods nor images are needed.
RUN: Values = {"master": {"args": ["python", "train.py"], "suspend": True}, "cleanup": "Never"}
OTHER_COMMAND: Values = {"master": {"args": ["python", "other.py"]}}
KINDS = "jobs,statefulsets"


def upgrade(place: Namespace, version: str, chart: Path, *values: Values) -> str:
    """Upgrade or install with merged values, which must succeed; the notes."""
    merged: Values = {}
    for each in values:
        merged = merge_values(merged, each)
    done = place.helm("upgrade", "--install", "hvd", str(chart), values=merged, version=version)
    assert done.returncode == 0, done.stderr
    return done.stdout


def written(place: Namespace) -> dict[str, Any]:
    """The Job and the StatefulSet by uid, with the number of times that their spec was written."""
    items = place.get(KINDS)["items"]
    assert len(items) == 2
    return {item["metadata"]["uid"]: item["metadata"]["generation"] for item in items}


def programs(place: Namespace) -> set[str]:
    """The ConfigMaps of programs that the Job's and the StatefulSet's pods mount."""
    return {
        volume["configMap"]["name"]
        for item in place.get(KINDS)["items"]
        for volume in pod_spec(item)["volumes"]
        if volume["name"].startswith("programs-")
    }


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
    mounted = programs(place)
    notes = upgrade(place, version, newer, RUN, {"metrics": {"enabled": True}})
    assert written(place) == before
    assert "The next run uses this version of the chart." in notes
    assert programs(place) == mounted
    files = [name for each in mounted for name in place.get("configmap", each)["data"]]
    assert "passwd.py" in files, "the programs of the run's own chart"
    labels = place.get("job", place.job("hvd"))["metadata"]["labels"]
    assert labels["helm.sh/chart"].startswith("horovod-1")
    # The number of retries, the deadline and the time to live apply to the run as it is.
    longer = {"master": {"backoffLimit": 9, "activeDeadlineSeconds": 99}}
    upgrade(place, version, newer, RUN, longer)
    assert place.get("job", place.job("hvd"))["spec"]["backoffLimit"] == 9
    assert before.keys() == written(place).keys()

    upgrade(place, version, newer, RUN, OTHER_COMMAND)
    assert len(before.keys() & written(place).keys()) == 1, "another Job, the same StatefulSet"
    assert not mounted & programs(place), "the next run uses the newer chart"
    config_maps = [item["metadata"]["name"] for item in place.get("configmaps")["items"]]
    assert not mounted & set(config_maps)


@pytest.mark.parametrize("version", HELMS)
def test_newer_chart_or_other_settings_do_not_repeat_a_finished_run(
    place: Namespace, newer: Path, version: str
) -> None:
    going: Values = {**RUN, "master": {"args": ["python", "train.py"]}, "cleanup": "OnSuccess"}
    upgrade(place, version, CHART, RUN)
    first = place.job("hvd")
    end(place, "SuccessCriteriaMet", "Complete")
    notes = upgrade(place, version, newer, going)
    assert place.job("hvd") == first
    assert place.replicas("hvd-worker") == 0, "the workers that were scaled down stay away"
    assert f"This run finished under the Job {first}: nothing was started." in notes
    assert "--set master.generation=2" in notes
    upgrade(place, version, newer, RUN, {"master": {"resources": {"limits": {"cpu": 1}}}})
    assert place.job("hvd") == first
    upgrade(place, version, newer, RUN, {"master": {"generation": 2}})
    assert first not in place.jobs("hvd"), "a repetition was asked for"


def test_failed_run_is_tried_again_with_other_settings_only(place: Namespace, newer: Path) -> None:
    upgrade(place, "helm4", CHART, RUN)
    first = place.job("hvd")
    end(place, "FailureTarget", "Failed")
    upgrade(place, "helm4", newer, RUN)
    assert place.job("hvd") == first
    upgrade(place, "helm4", newer, RUN, {"shm": {"sizeLimit": "8Gi"}})
    assert first not in place.jobs("hvd")


@pytest.mark.parametrize("version", HELMS)
def test_replaced_record_does_not_repeat_a_finished_run(place: Namespace, version: str) -> None:
    force = ["--force"] if version == "helm3" else ["--force-replace", "--server-side=false"]

    def replace() -> int:
        options = ("hvd", str(CHART), *force)
        return place.helm("upgrade", *options, values=RUN, version=version).returncode

    wait_for_default_account(place)
    upgrade(place, version, CHART, RUN)
    labels = place.get("job", place.job("hvd"))["metadata"]["labels"]
    ended = {key: labels[f"horovod/{key}"] for key in ("run", "settings")}
    patch = json.dumps({"data": {**ended, "state": "Finished", "time": "2026-01-01T10:01:00Z"}})
    place.kubectl("patch", "configmap", "hvd-run", "--patch", patch)
    end(place, "SuccessCriteriaMet", "Complete")
    keys = place.get("secret", "hvd-ssh")["data"]

    assert replace() == 1, "Kubernetes does not replace a Job"
    assert "data" not in place.get("configmap", "hvd-run")
    place.kubectl("delete", "job", place.job("hvd"))
    assert replace() == 0
    notes = upgrade(place, version, CHART, RUN)
    assert "This run finished at 2026-01-01T10:01:00Z" in notes
    assert place.jobs("hvd") == []
    assert place.get("secret", "hvd-ssh")["data"] == keys
    upgrade(place, version, CHART, RUN, OTHER_COMMAND)
    assert len(place.jobs("hvd")) == 1
    assert "horovod/ended" not in place.get("configmap", "hvd-run")["metadata"]["annotations"]


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


def wait_for_default_account(place: Namespace) -> None:
    """Helm takes this account as the sign that it can read the cluster."""
    place.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=180s")


@pytest.mark.parametrize("version", HELMS)
def test_helm_makes_the_keys_once_and_leaves_an_empty_secret_to_the_master(
    place: Namespace, version: str
) -> None:
    def keys() -> dict[str, str] | None:
        data: dict[str, str] | None = place.get("secret", "hvd-ssh").get("data")
        return data

    wait_for_default_account(place)
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
    patch = f"--patch={json.dumps({'data': made})}"
    place.kubectl("patch", "secret", "hvd-ssh", "--type=merge", patch)
    upgrade(place, version, CHART, RUN)
    assert keys() == made

    upgrade(place, version, CHART, RUN, {"ssh": {"generation": 2}})
    other = place.get("secret", "hvd-ssh-2")["data"]
    assert not set(other.values()) & {*made.values(), *first.values()}


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


STAGED: Values = {**on_disk("/mnt/data"), "staging": STAGING}
# What the record adds.
HAVE_THEM = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-a", "node-b"]}


def put_record(place: Namespace, *nodes: str) -> None:
    """Write the record of the nodes with the data as a master does, with its rights."""
    rules = place.get("role", "hvd-master")["rules"]
    (name,) = next(rule["resourceNames"] for rule in rules if "create" in rule["verbs"][1:])
    metadata = {"name": name, "labels": {"horovod/record": "staged"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    account = f"--as=system:serviceaccount:{place.name}:hvd-master"
    apply = ("apply", "--server-side", "--filename", "-", account)
    place.kubectl(*apply, input=json.dumps(body))
    data = json.dumps({"data": dict.fromkeys(nodes, "2026-01-01T10:00:00Z")})
    place.kubectl("patch", "configmap", name, "--type=merge", "-p", data, account)
    body["metadata"] = {"name": "another"}
    refused = place.call(*place.client.command(*apply), input=json.dumps(body))
    assert "cannot" in refused.stderr, "the master may write no other ConfigMap"


def affinity(place: Namespace) -> Any:
    return pod_spec(place.get("statefulset", "hvd-worker"))["affinity"]


def revision(place: Namespace) -> Any:
    labels = place.get("statefulset", "hvd-worker")["spec"]["template"]["metadata"]["labels"]
    return labels["horovod/revision"]


@pytest.mark.parametrize("version", HELMS)
def test_next_run_goes_to_the_nodes_that_have_the_data(place: Namespace, version: str) -> None:
    notes = upgrade(place, version, CHART, RUN, STAGED)
    assert "have the data" not in notes
    assert set(affinity(place)) == {"podAntiAffinity"}
    before = revision(place)
    put_record(place, "node-b", "node-a")

    upgrade(place, version, CHART, RUN, STAGED)
    assert set(affinity(place)) == {"podAntiAffinity"}, "the run that is there stays as it is"

    notes = upgrade(place, version, CHART, RUN, STAGED, OTHER_COMMAND)
    assert "Nodes that have the data of staging.path already: node-a, node-b." in notes
    assert "A worker on another node fetches the data" in notes
    preferred = [{"weight": 100, "preference": {"matchExpressions": [HAVE_THEM]}}]
    assert affinity(place)["nodeAffinity"] == {
        "preferredDuringSchedulingIgnoredDuringExecution": preferred
    }
    assert "podAntiAffinity" in affinity(place)
    assert revision(place) == before, "workers that run have the data: none is replaced"


def test_nodes_with_the_data_can_be_required_beside_what_the_values_require_or_be_ignored(
    place: Namespace,
) -> None:
    upgrade(place, "helm4", CHART, RUN, STAGED)
    put_record(place, "node-a", "node-b")
    upgrade(place, "helm3", CHART, RUN, STAGED, OTHER_COMMAND, {"staging": {"nodes": "Any"}})
    assert set(affinity(place)) == {"podAntiAffinity"}
    pools = [
        {"matchExpressions": [{"key": "pool", "operator": "In", "values": [name]}]}
        for name in ("a", "b")
    ]
    own = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": pools}}
    required = {"staging": {"nodes": "Required"}, "worker": {"affinity": {"nodeAffinity": own}}}
    notes = upgrade(place, "helm4", CHART, RUN, STAGED, OTHER_COMMAND, required)
    assert "Workers run on these nodes only." in notes
    # Of several terms one is enough for a node: each has the condition.
    terms = affinity(place)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["matchExpressions"] for term in terms["nodeSelectorTerms"]] == [
        [*pool["matchExpressions"], HAVE_THEM] for pool in pools
    ]
