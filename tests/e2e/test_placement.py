"""Where the scheduler puts the pods of a release, on a real cluster of one node."""

from __future__ import annotations

from tests.e2e.cluster import CHART, Namespace, Values

ARGS = ["python3", "-c", "print('trained')"]


def test_required_spread_fails_on_one_node_with_the_schedulers_reason(namespace: Namespace) -> None:
    values: Values = {
        "worker": {"number": 2, "spread": "Required"},
        "master": {"args": ARGS, "backoffLimit": 0},
        "launch": {"hostsTimeoutSeconds": 3},
    }
    namespace.install("hvd", values)
    assert namespace.wait_for_end("hvd") == "Failed", "there is only one node"
    log = namespace.log("hvd")
    assert "1 of 2 hosts did not answer" in log
    assert "didn't match pod anti-affinity rules" in log


def test_required_spread_of_two_releases_can_share_a_node(namespace: Namespace) -> None:
    values: Values = {"worker": {"number": 1, "spread": "Required"}, "master": {"args": ARGS}}
    for release in ("one", "two"):
        namespace.install(release, values)
    for release in ("one", "two"):
        assert namespace.wait_for_end(release) == "Complete", namespace.describe(release)


def test_pods_with_equal_requests_and_limits_are_guaranteed(namespace: Namespace) -> None:
    exact = {"cpu": "100m", "memory": "512Mi"}
    resources = {"requests": exact, "limits": exact}
    values: Values = {
        "worker": {"number": 1, "resources": resources},
        "master": {"args": ARGS, "resources": resources},
        # The image's own user gives each pod an init container, which writes its name down.
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None},
        "cleanup": "Never",
    }
    namespace.install("hvd", values)
    assert namespace.wait_for_end("hvd") == "Complete", namespace.describe("hvd")
    pods = namespace.get("pods")["items"]
    classes = {pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod for pod in pods}
    for pod in classes.values():
        assert pod["spec"]["initContainers"]
        # With the static CPU manager, only this class gets cores of its own.
        assert pod["status"]["qosClass"] == "Guaranteed"
    assert classes.keys() == {"master", "worker"}


def test_gang_without_its_scheduler_is_refused(namespace: Namespace) -> None:
    refused = namespace.helm("install", "hvd", str(CHART), values={"gang": "Volcano"})
    assert refused.returncode != 0
    assert 'no matches for kind "PodGroup"' in refused.stderr
    assert namespace.get("all")["items"] == []
