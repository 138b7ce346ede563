"""The life of a run on a real cluster: upgrades, roll-backs, retries, deadlines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from ruamel.yaml import YAML

from devtools.common.repository import CHART
from devtools.toolchain.kubectl import Kubectl
from tests.e2e.command import hvdchart
from tests.e2e.quick_runs import assert_trained, keys_of, quick_values
from tests.support.gitops import documented_object
from tests.support.namespace import Namespace, Values

SLEEP = "import time; time.sleep(600)"


def stages(namespace: Namespace) -> list[str]:
    """What the master has come to, however long its workers took: a busy machine warns of that."""
    reasons = [event["reason"] for event in namespace.master_events()]
    return [reason for reason in reasons if reason != "WorkersMissing"]


def wait_for_training(namespace: Namespace, attempt: int) -> None:
    """Wait until the launcher of the given attempt, counted from 1, starts."""
    namespace.wait_for_event("Training", 360, attempt)


def generations(namespace: Namespace) -> dict[str, Any]:
    """The release's objects by uid, each with the number of times that its spec was written."""
    kinds = "jobs,statefulsets,services,configmaps,secrets,roles"
    objects = namespace.get(kinds, "--selector", "app.kubernetes.io/instance=hvd")["items"]
    return {item["metadata"]["uid"]: item["metadata"].get("generation") for item in objects}


def workers(namespace: Namespace) -> list[dict[str, Any]]:
    """The metadata of the worker pods."""
    listed = namespace.get("pods", "--selector", "app.kubernetes.io/component=worker")
    return [pod["metadata"] for pod in listed["items"]]


@dataclass(frozen=True)
class Trained:
    """The Job of a run that has finished, and the UIDs of its workers, which stay."""

    job: str
    workers: set[str]


@pytest.fixture(scope="class")
def installed(namespace: Namespace) -> Trained:
    """The first run of the release."""
    namespace.install("hvd", quick_values(cleanup="Never"))
    assert_trained(namespace, "hvd")
    return Trained(namespace.job("hvd"), {pod["uid"] for pod in workers(namespace)})


@pytest.fixture(scope="class")
def changed(installed: Trained, namespace: Namespace) -> Trained:
    """Other values have come, and their run has ended. The first run is returned."""
    env = [*quick_values()["worker"]["env"], {"name": "CHANGED", "value": "yes"}]
    worker = {"podLabels": {"changed": "yes"}, "env": env}
    namespace.upgrade("hvd", quick_values(cleanup="Never", worker=worker))
    namespace.wait_for_end("hvd")
    return installed


@pytest.fixture(scope="class")
def rolled_back(changed: Trained, namespace: Namespace) -> Trained:
    """The release has its first values again."""
    done = namespace.helm("rollback", "hvd", "1")
    assert done.returncode == 0, done.stderr
    return changed


@pytest.fixture(scope="class")
def rotated(rolled_back: Trained, namespace: Namespace) -> list[str]:
    """Another generation of keys has come. The keys before are returned."""
    before = keys_of(namespace, "hvd")
    rotate = ["--reuse-values", "--set", "agent.generation=2,master.generation=2"]
    done = namespace.helm("upgrade", "hvd", str(CHART), *rotate)
    assert done.returncode == 0, done.stderr
    return before


class TestUpgrades:
    def test_other_values_start_a_run(self, changed: Trained, namespace: Namespace) -> None:
        assert changed.job not in namespace.jobs("hvd"), "a changed run kept its old Job"
        assert_trained(namespace, "hvd")

    def test_running_workers_are_replaced(self, changed: Trained, namespace: Namespace) -> None:
        after = workers(namespace)
        assert not changed.workers & {pod["uid"] for pod in after}
        assert {pod["labels"]["changed"] for pod in after} == {"yes"}

    def test_rollback_starts_the_first_run_again(
        self, rolled_back: Trained, namespace: Namespace
    ) -> None:
        assert namespace.job("hvd") == rolled_back.job
        assert_trained(namespace, "hvd")

    @pytest.mark.promise("keys are rotated by one upgrade")
    def test_keys_are_rotated_by_one_upgrade(
        self, rotated: list[str], namespace: Namespace
    ) -> None:
        assert not {*rotated} & {*keys_of(namespace, "hvd", generation=2)}
        assert_trained(namespace, "hvd")


def test_upgrade_replaces_workers_that_never_started(namespace: Namespace) -> None:
    """Nothing rolls out to pods that wait for an image that does not exist, but the master does."""
    namespace.install("hvd", quick_values(worker={"image": {"repository": "no-such-image"}}))
    namespace.upgrade("hvd", quick_values())
    assert_trained(namespace, "hvd")


def sync(namespace: Namespace, run: Values) -> str:
    """Render without the cluster, apply and prune as the Application of the page says.

    Return the rendered text.
    """
    done = namespace.helm("template", "hvd", str(CHART), "--no-hooks", values=run)
    assert done.returncode == 0, done.stderr
    manifests = [item for item in YAML(typ="safe").load_all(done.stdout) if item]
    # RespectIgnoreDifferences: an ignored field is applied as it is in the cluster.
    (ignored,) = documented_object("Application")["spec"]["ignoreDifferences"]
    assert ignored["jsonPointers"] == ["/spec/replicas"]
    live = {item["metadata"]["name"]: item for item in namespace.get("statefulsets")["items"]}
    for manifest in manifests:
        if manifest["kind"] == ignored["kind"] and live:
            manifest["spec"]["replicas"] = live[manifest["metadata"]["name"]]["spec"]["replicas"]
    environment = {"KUBECONFIG": str(namespace.kubeconfig), "KUBECTL_APPLYSET": "true"}
    Kubectl(namespace.name, environment).run(
        "apply",
        "--server-side",
        "--prune",
        "--applyset=synced",
        "--filename",
        "-",
        input="\n---\n".join(json.dumps(manifest) for manifest in manifests),
    )
    return done.stdout


@dataclass(frozen=True)
class Synced:
    """What was synced first, its rendered text, and the Job of its run."""

    values: Values
    text: str
    job: str


def workers_of_the_page() -> Values:
    """The workers of the Application of docs/gitops.md."""
    values = documented_object("Application")["spec"]["source"]["helm"]["valuesObject"]
    worker: Values = values["worker"]
    return worker


@pytest.fixture(scope="class")
def synced(namespace: Namespace) -> Synced:
    """A run of one worker has finished."""
    run = quick_values(worker={"number": 1, "slots": workers_of_the_page()["slots"]})
    text = sync(namespace, run)
    namespace.assert_completes("hvd")
    return Synced(run, text, namespace.job("hvd"))


@pytest.fixture(scope="class")
def deleted(synced: Synced, namespace: Namespace) -> Synced:
    """Somebody has deleted the Job of the finished run."""
    namespace.kubectl("delete", "job", synced.job)
    return synced


@pytest.fixture(scope="class")
def made_again(deleted: Synced, namespace: Namespace) -> Synced:
    """A sync has created the Job again, which has ended."""
    sync(namespace, deleted.values)
    namespace.assert_completes("hvd")
    return deleted


@pytest.fixture(scope="class")
def synced_with_more_workers(made_again: Synced, namespace: Namespace) -> Synced:
    """The page's own number of workers was synced, which are other values."""
    sync(namespace, quick_values(worker=workers_of_the_page()))
    return made_again


class TestSyncedManifests:
    """As docs/gitops.md says: rendered without the cluster, applied again and again, pruned."""

    def test_first_master_makes_the_keys(self, synced: Synced, namespace: Namespace) -> None:
        assert len(keys_of(namespace, "hvd")) == 2 * 3

    def test_run_trains_once(self, synced: Synced, namespace: Namespace) -> None:
        assert stages(namespace) == ["Started", "WorkersReady", "Training", "Finished"]

    def test_same_values_change_nothing(self, synced: Synced, namespace: Namespace) -> None:
        before = generations(namespace)
        assert sync(namespace, synced.values) == synced.text, "renderings differ"
        assert generations(namespace) == before, "the same values changed an object"
        assert namespace.replicas("hvd-worker") == 0, "the workers of a finished run came back"

    def test_status_is_known_without_the_job(self, deleted: Synced, namespace: Namespace) -> None:
        where = ["--namespace", namespace.name, "--output", "json"]
        status = json.loads(hvdchart(namespace, "status", "hvd", *where).stdout)
        assert status["state"] == "finished"

    def test_finished_run_is_not_repeated_by_a_new_job(
        self, made_again: Synced, namespace: Namespace
    ) -> None:
        assert namespace.job("hvd") == made_again.job
        assert len(namespace.master_events("Training")) == 1
        assert namespace.replicas("hvd-worker") == 0

    def test_other_values_start_a_run_and_prune_the_job_before(
        self, synced_with_more_workers: Synced, namespace: Namespace
    ) -> None:
        assert namespace.job("hvd") != synced_with_more_workers.job
        assert_trained(namespace, "hvd")
        namespace.wait_for_no_workers("hvd")
        assert namespace.replicas("hvd-worker") == 0


ENDLESS: Values = {"args": ["python3", "-c", SLEEP], "backoffLimit": 0}


@pytest.fixture(scope="class")
def evicted(namespace: Namespace) -> str:
    """The Job of a run that may not fail, and whose master was evicted; it trains again."""
    namespace.install("hvd", quick_values(cleanup="Always", master=ENDLESS))
    wait_for_training(namespace, 1)
    (first,) = namespace.master_pods("hvd")
    name = first["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{namespace.name}/pods/{name}/eviction"
    namespace.kubectl("create", "--raw", path, "--filename", "-", input=json.dumps(eviction))
    # The second attempt has workers.
    wait_for_training(namespace, 2)
    return namespace.job("hvd")


@pytest.fixture(scope="class")
def limited(evicted: str, namespace: Namespace) -> str:
    """The same Job was given a deadline that is past at once."""
    master = {**ENDLESS, "activeDeadlineSeconds": 1}
    namespace.upgrade("hvd", quick_values(cleanup="Always", master=master))
    return evicted


class TestEvictionAndDeadline:
    def test_eviction_is_not_a_failure(self, evicted: str, namespace: Namespace) -> None:
        assert not namespace.get("job", evicted)["status"].get("failed")

    def test_deadline_ends_the_active_run(self, limited: str, namespace: Namespace) -> None:
        assert namespace.wait_for_end("hvd") == "Failed"
        assert namespace.job("hvd") == limited
        assert namespace.replicas("hvd-worker") == 0

    def test_deadline_is_the_reason(self, limited: str, namespace: Namespace) -> None:
        namespace.wait_for_end("hvd")
        message = namespace.master_events("Failed")[-1]["message"]
        assert "longer than `master.activeDeadlineSeconds=1`" in message
