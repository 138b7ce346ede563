"""The life of a run on a real cluster: upgrades, roll-backs, retries, deadlines, time to live."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from devtools.toolchain.kubectl import Kubectl
from tests.chart.test_custom_resources import documented
from tests.e2e.cluster import CHART, HELMS, Namespace, Values
from tests.e2e.test_hvdchart import hvdchart
from tests.e2e.test_training import assert_trained, values

SLEEP = "import time; time.sleep(600)"


def events(namespace: Namespace, reason: str = "") -> list[dict[str, Any]]:
    """The events of the master, oldest first: all, or those with one reason."""
    listed: list[dict[str, Any]] = namespace.get("events", "--sort-by=.eventTime")["items"]
    own = [event for event in listed if event["source"].get("component") == "horovod-master"]
    return [event for event in own if reason in ("", event["reason"])]


def stages(namespace: Namespace) -> list[str]:
    """What the master has come to, however long its hosts took: a busy machine warns of that."""
    reasons = [event["reason"] for event in events(namespace)]
    return [reason for reason in reasons if reason != "HostsMissing"]


def wait_for_training(namespace: Namespace, attempt: int) -> None:
    """Wait until the launcher of the given attempt, counted from 1, starts."""
    namespace.wait_for_event("Training", 360, attempt)


def generations(namespace: Namespace) -> dict[str, Any]:
    """The release's objects by uid, each with the number of times that its spec was written."""
    kinds = "jobs,statefulsets,services,configmaps,secrets,roles"
    own = namespace.get(kinds, "--selector", "app.kubernetes.io/instance=hvd")["items"]
    return {item["metadata"]["uid"]: item["metadata"].get("generation") for item in own}


@pytest.mark.parametrize("version", HELMS)
def test_upgrade_runs_again_only_when_values_change_and_rollback_runs_again(
    namespace: Namespace, version: str
) -> None:
    run = values(cleanup="Always")
    namespace.install("hvd", run, version=version)
    assert_trained(namespace, "hvd")
    namespace.wait_for_no_workers("hvd")
    keys = namespace.get("secret", "hvd-ssh")["data"]
    first = namespace.job("hvd")

    namespace.upgrade("hvd", run, version=version)
    assert namespace.job("hvd") == first, "the same values started a new run"
    assert namespace.replicas("hvd-worker") == 0, "the workers of a finished run came back"

    # Setting a time to live does not start a new run either, and removes the Job and all pods.
    mortal = values(cleanup="Always", master={"ttlSecondsAfterFinished": 0})
    namespace.upgrade("hvd", mortal, version=version)
    namespace.kubectl("wait", f"job/{first}", "--for=delete", "--timeout=180s")
    namespace.kubectl("wait", "pods", "--all", "--for=delete", "--timeout=180s")
    namespace.upgrade("hvd", mortal, version=version)
    assert namespace.jobs("hvd") == [], "a run that was over began again"
    assert namespace.replicas("hvd-worker") == 0

    env = values()["worker"]["env"]
    more = values(worker={"env": [*env, {"name": "CHANGED", "value": "yes"}]})
    namespace.upgrade("hvd", more, version=version)
    assert namespace.get("secret", "hvd-ssh")["data"] == keys
    assert first not in namespace.jobs("hvd"), "a changed run kept its old Job"
    assert_trained(namespace, "hvd")

    assert namespace.helm("rollback", "hvd", "1", version=version).returncode == 0
    assert namespace.job("hvd") == first
    assert_trained(namespace, "hvd")
    namespace.wait_for_no_workers("hvd")


def sync(namespace: Namespace, run: Values) -> str:
    """Render without the cluster, apply and prune as the Application of the page says.

    Return the rendered text.
    """
    done = namespace.helm("template", "hvd", str(CHART), "--no-hooks", values=run)
    assert done.returncode == 0, done.stderr
    manifests = [item for item in YAML(typ="safe").load_all(done.stdout) if item]
    # RespectIgnoreDifferences: an ignored field is applied as it is in the cluster.
    (ignored,) = documented("Application")["spec"]["ignoreDifferences"]
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


def test_synced_manifests_train_once_for_each_change_of_values(namespace: Namespace) -> None:
    """As docs/gitops.md says: rendered without the cluster, applied again and again, pruned."""
    written = documented("Application")["spec"]["source"]["helm"]["valuesObject"]
    run = values(worker={"number": 1, "slots": written["worker"]["slots"]})
    first_text = sync(namespace, run)
    first = namespace.job("hvd")
    namespace.assert_completes("hvd")
    assert "created the SSH keys of the release in Secret hvd-ssh" in namespace.log("hvd")
    keys = namespace.get("secret", "hvd-ssh")["data"]
    assert stages(namespace) == ["Started", "HostsReady", "Training", "Finished"]

    before = generations(namespace)
    assert sync(namespace, run) == first_text, "renderings differ"
    assert generations(namespace) == before, "the same values changed an object"
    assert namespace.replicas("hvd-worker") == 0, "the workers of a finished run came back"

    namespace.kubectl("delete", "job", first)
    where = ["--namespace", namespace.name, "--output", "json"]
    assert json.loads(hvdchart(namespace, "status", "hvd", *where).stdout)["state"] == "finished"
    sync(namespace, run)
    assert namespace.job("hvd") == first
    namespace.assert_completes("hvd")
    log = namespace.log("hvd")
    assert "this run already finished at" in log
    assert "$ mpirun" not in log
    assert namespace.replicas("hvd-worker") == 0

    # The page's own number of workers: other values, so that another run starts.
    sync(namespace, values(worker=written["worker"]))
    assert first != namespace.job("hvd"), "the Job of the run before was not pruned"
    assert_trained(namespace, "hvd")
    assert namespace.get("secret", "hvd-ssh")["data"] == keys
    namespace.wait_for_no_workers("hvd")
    assert namespace.replicas("hvd-worker") == 0


def test_eviction_is_not_a_failure_and_a_deadline_ends_the_run(namespace: Namespace) -> None:
    sleeping: dict[str, Any] = {"args": ["python3", "-c", SLEEP], "backoffLimit": 0}
    namespace.install("hvd", values(cleanup="Always", master=sleeping))
    wait_for_training(namespace, 1)
    (first,) = namespace.attempts("hvd")
    name = first["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{namespace.name}/pods/{name}/eviction"
    namespace.kubectl("create", "--raw", path, "--filename", "-", input=json.dumps(eviction))
    # No failure is allowed, yet there is a second attempt, and it has workers.
    wait_for_training(namespace, 2)
    job = namespace.job("hvd")
    assert not namespace.get("job", job)["status"].get("failed")

    # Past at once: the very Job that runs is given it.
    limited = values(cleanup="Always", master={**sleeping, "activeDeadlineSeconds": 1})
    namespace.upgrade("hvd", limited)
    assert namespace.wait_for_end("hvd") == "Failed"
    assert namespace.job("hvd") == job
    assert namespace.replicas("hvd-worker") == 0
    assert (
        "longer than master.activeDeadlineSeconds=1" in events(namespace, "Failed")[-1]["message"]
    )


def test_failed_run_is_retried_then_scales_its_workers_to_zero(namespace: Namespace) -> None:
    failing = {"args": ["python3", "-c", "raise SystemExit(3)"], "backoffLimit": 1}
    namespace.install("hvd", values(cleanup="Always", master=failing))
    assert namespace.wait_for_end("hvd") == "Failed"
    (master,) = namespace.attempts("hvd")
    end = master["status"]["containerStatuses"][0]["state"]["terminated"]
    assert end["exitCode"] == 3
    assert re.fullmatch(r"rank [0-3] on hvd-worker-[01]: exit code 3\n", end["message"])
    assert len(events(namespace, "Training")) == 2, "the workers of a run that goes on were taken"
    assert namespace.replicas("hvd-worker") == 0


def test_refused_upgrade_leaves_the_run_unchanged(namespace: Namespace) -> None:
    running = values(master={"args": ["python3", "-c", SLEEP]})
    namespace.install("hvd", running)
    wait_for_training(namespace, 1)
    before = generations(namespace)
    refusals = {"wroker": {"number": 3}, "cleanup": "Always", "useHostNetwork": True}
    for key, value in refusals.items():
        changed = values(**{**running, "serviceAccount": {"create": False}, key: value})
        refused = namespace.helm("upgrade", "hvd", str(CHART), values=changed)
        assert refused.returncode != 0
        assert key in refused.stderr
    assert generations(namespace) == before
    begun = ["Started", "HostsReady", "Training"]
    assert stages(namespace) == begun, "the run that goes on was disturbed"
    status = namespace.helm("status", "hvd").stdout
    assert "STATUS: deployed" in status
    here = f"--namespace {namespace.name}"
    for following in (
        f"kubectl {here} logs --follow job/{namespace.job('hvd')}",
        f"kubectl {here} describe jobs,statefulsets,pods",
        f"helm {here} uninstall hvd",
    ):
        assert following in status


def test_suspended_run_starts_when_it_is_resumed(namespace: Namespace) -> None:
    namespace.install("hvd", values(master={"suspend": True}))
    assert namespace.get("pods")["items"] == []
    namespace.upgrade("hvd", values())
    assert_trained(namespace, "hvd")
