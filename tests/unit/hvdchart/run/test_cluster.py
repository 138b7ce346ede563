"""What is read from a cluster, over real HTTP from a small API server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hvdchart.errors import ClusterError
from hvdchart.image.check import probe_pod
from hvdchart.run import cluster as cluster_module
from hvdchart.run.cluster import Cluster
from tests.fakes.cluster import FakeCluster, write_kubeconfig
from tests.ports import find_port
from tests.unit.hvdchart.nodes import node
from tests.unit.hvdchart.runs import LABELS, MASTER, STATEFUL_SET, WORKERS, event, job

pytestmark = pytest.mark.timeout(120)


def named(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def test_connection_uses_the_current_context_and_its_namespace(fake_cluster: FakeCluster) -> None:
    assert Cluster.connect().namespace == "team"
    assert Cluster.connect(namespace="mine").namespace == "mine"
    assert Cluster.connect("other").namespace == "default"
    assert Cluster.connect("other", "mine").namespace == "mine"


def test_unknown_context_is_refused_with_the_known_ones(fake_cluster: FakeCluster) -> None:
    with pytest.raises(ClusterError, match="has no context 'none'; its contexts: main, other"):
        Cluster.connect("none")


def test_connection_without_a_kubeconfig_names_the_variable(kubeconfig_file: Path) -> None:
    with pytest.raises(ClusterError, match=r"no cluster: .*; set KUBECONFIG to a kubeconfig file"):
        Cluster.connect()
    with pytest.raises(ClusterError, match=r"the kubeconfig .* cannot be used"):
        Cluster.connect("main")


def test_nodes_are_listed_by_labels(fake_cluster: FakeCluster) -> None:
    fake_cluster.put("nodes", node("a", "8", "1Gi", {"pool": "x"}), node("b", "8", "1Gi"))
    cluster = Cluster.connect()
    assert [each["metadata"]["name"] for each in cluster.nodes("pool=x")] == ["a"]
    assert len(cluster.nodes()) == 2


def test_all_pods_are_those_of_all_namespaces(fake_cluster: FakeCluster) -> None:
    fake_cluster.put("pods", named("a"))
    assert [pod["metadata"]["name"] for pod in Cluster.connect().all_pods()] == ["a"]
    assert fake_cluster.requests[-1].url == "/api/v1/pods"


def test_release_has_its_own_objects_and_events_in_order(fake_cluster: FakeCluster) -> None:
    fake_cluster.put("jobs", job(), named("other"))
    fake_cluster.put("statefulsets", STATEFUL_SET, named("other"))
    fake_cluster.put("pods", MASTER, *WORKERS, named("other"))
    fake_cluster.put(
        "events",
        event("hvd-worker-0", "Pod", "Second", "", at="2026-01-01T10:00:02Z"),
        event("hvd-worker-0", "Pod", "First", "", at="2026-01-01T10:00:01Z"),
        event("other", "Pod", "Third", ""),
    )
    release = Cluster.connect().release("hvd")
    assert (len(release.jobs), len(release.stateful_sets), len(release.pods)) == (1, 1, 3)
    assert [each["reason"] for each in release.events] == ["First", "Second"]
    assert (release.name, release.record) == ("hvd", {})
    assert {request.url for request in fake_cluster.requests} == {
        "/apis/batch/v1/namespaces/team/jobs",
        "/apis/apps/v1/namespaces/team/statefulsets",
        "/api/v1/namespaces/team/pods",
        "/api/v1/namespaces/team/events",
        "/api/v1/namespaces/team/configmaps/hvd-run",
    }


def test_record_is_read_without_a_job(fake_cluster: FakeCluster) -> None:
    cluster = Cluster.connect()
    assert cluster.release("hvd").record == {}
    fake_cluster.put("configmaps", {"metadata": {"name": "hvd-run"}})
    assert cluster.release("hvd").record == {}
    fake_cluster.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": {"state": "Failed"}})
    assert cluster.release("hvd").record == {"state": "Failed"}
    fake_cluster.refusals["configmaps get"] = (500, "storage is down")
    with pytest.raises(ClusterError, match="cannot read configmap hvd-run in namespace team: stor"):
        cluster.release("hvd")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, r"does not accept your credentials \(m\); renew those in the kubeconfig"),
        (403, r"you are not allowed to \(m\); ask for a role with that permission"),
        (503, r"m \(HTTP 503\)"),
    ],
)
def test_refused_request_has_the_servers_message(
    fake_cluster: FakeCluster, status: int, message: str
) -> None:
    fake_cluster.refusals["nodes list"] = (status, "m")
    with pytest.raises(ClusterError, match=f"^cannot list nodes: .*{message}$"):
        Cluster.connect().nodes()


def test_server_that_does_not_answer_is_an_error(kubeconfig_file: Path) -> None:
    write_kubeconfig(kubeconfig_file, f"http://127.0.0.1:{find_port()}")
    with pytest.raises(ClusterError, match=r"cannot list pods .*: the API server does not answer"):
        Cluster.connect().all_pods()


@contextmanager
def answering(kubeconfig_file: Path, answer: bytes) -> Iterator[None]:
    """A server that sends these bytes to the first request and ends."""

    def serve() -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(answer)
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        write_kubeconfig(kubeconfig_file, f"http://127.0.0.1:{listener.getsockname()[1]}")
        server = threading.Thread(target=serve)
        server.start()
        yield
        server.join()


def test_answer_that_is_not_from_kubernetes_has_its_http_reason(kubeconfig_file: Path) -> None:
    refused = pytest.raises(ClusterError, match=r"cannot list nodes: Bad Gateway \(HTTP 502\)")
    with answering(kubeconfig_file, b"HTTP/1.0 502 Bad Gateway\r\n\r\n<html>"), refused:
        Cluster.connect().nodes()


def test_watches_yield_present_objects_then_changes(fake_cluster: FakeCluster) -> None:
    cluster = Cluster.connect()
    for resource, watch, old in (
        ("pods", cluster.watch_pods("hvd", 7), MASTER),
        ("jobs", cluster.watch_jobs("hvd", 7), job()),
        ("events", cluster.watch_events(7), event("any", "Pod", "Reason", "")),
    ):
        fake_cluster.put(resource, old)
        assert next(watch) == ("ADDED", old)
        new = {**old, "status": {"phase": "Failed"}}
        fake_cluster.put(resource, named("other"), new)
        kinds = [next(watch)]
        if resource == "events":
            kinds.append(next(watch))
        assert kinds[-1] == ("MODIFIED", new)
        request = fake_cluster.requests[-1]
        assert request.query["timeoutSeconds"] == "7"
        labels = ",".join(f"{key}={value}" for key, value in LABELS.items())
        assert request.query.get("labelSelector", "") == (labels if resource != "events" else "")


def test_refused_watch_is_an_error(fake_cluster: FakeCluster) -> None:
    fake_cluster.refusals["pods watch"] = (403, "forbidden")
    with pytest.raises(ClusterError, match="cannot watch pods in namespace team: you are not"):
        next(Cluster.connect().watch_pods("hvd", 7))


def test_log_is_split_into_lines(fake_cluster: FakeCluster) -> None:
    fake_cluster.log("hvd-0", "first", "Grüße", "", "long" * 20_000, end=True)
    cluster = Cluster.connect()
    lines = list(cluster.log("hvd-0", "worker", follow=False))
    assert lines == ["first", "Grüße", "", "long" * 20_000]
    assert fake_cluster.requests[-1].query["container"] == "worker"
    assert list(cluster.log("hvd-0", "worker", follow=True, tail=1)) == ["long" * 20_000]


def test_log_without_a_final_line_end_keeps_its_last_line(kubeconfig_file: Path) -> None:
    with answering(kubeconfig_file, b"HTTP/1.0 200 OK\r\n\r\na\nb\xff"):
        lines = list(Cluster.connect().log("p", "c", follow=False))
    assert lines == ["a", "b\N{REPLACEMENT CHARACTER}"]


def test_log_of_a_missing_pod_is_an_error(fake_cluster: FakeCluster) -> None:
    with pytest.raises(ClusterError, match=r'log of pod x in namespace team: .*"x" not f'):
        list(Cluster.connect().log("x", "worker", follow=False))


def run_probe(fake_cluster: FakeCluster, *statuses: dict[str, Any]) -> Any:
    """Run a pod that goes through these states, and return its output or the error."""

    def play() -> None:
        fake_cluster.wait_for("pods", "watch")
        pod = {**probe_pod("image:1"), "metadata": {"name": "hvdchart-image-check-x1"}}
        for status in statuses:
            fake_cluster.put("pods", named("other"), {**pod, "status": status})

    fake_cluster.log("hvdchart-image-check-x1", "one", "two", end=True)
    kubelet = threading.Thread(target=play)
    kubelet.start()
    try:
        return Cluster.connect().run_pod(probe_pod("image:1"))
    except ClusterError as error:
        return error
    finally:
        kubelet.join()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_run_pod_returns_the_output_and_deletes_the_pod(
    fake_cluster: FakeCluster, phase: str
) -> None:
    assert run_probe(fake_cluster, {"phase": "Pending"}, {"phase": phase}) == "one\ntwo"
    assert fake_cluster.names("pods") == ["other"]
    created = fake_cluster.wait_for("pods", "create")
    assert created.body == probe_pod("image:1")
    deleted = fake_cluster.wait_for("pods", "delete")
    assert deleted.query == {"gracePeriodSeconds": "0"}
    assert fake_cluster.wait_for("log", "get").query["container"] == "probe"


def test_pod_that_cannot_start_is_an_error_and_is_deleted(fake_cluster: FakeCluster) -> None:
    waiting = {"reason": "ErrImagePull", "message": "no such image"}
    status = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    error = run_probe(fake_cluster, status)
    assert "pod hvdchart-image-check-x1: ErrImagePull" in str(error)
    assert "check image.repository" in str(error)
    assert fake_cluster.names("pods") == ["other"]


def test_pod_that_does_not_end_in_time_is_an_error(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "POD_SECONDS", 5)

    def end_watch() -> None:
        fake_cluster.wait_for("pods", "watch")
        fake_cluster.stop()

    threading.Thread(target=end_watch).start()
    with pytest.raises(ClusterError, match="pod hvdchart-image-check-x1 did not end within 5 s"):
        Cluster.connect().run_pod(probe_pod("image:1"))
    query = fake_cluster.wait_for("pods", "watch").query
    assert query["timeoutSeconds"] == "5"
    assert query["fieldSelector"] == "metadata.name=hvdchart-image-check-x1"


def test_refused_pod_is_an_error(fake_cluster: FakeCluster) -> None:
    fake_cluster.refusals["pods create"] = (403, "violates PodSecurity")
    with pytest.raises(ClusterError, match=r"create a pod in namespace team: .*PodSecurity"):
        Cluster.connect().run_pod(probe_pod("image:1"))


def test_pod_that_cannot_be_deleted_is_an_error(fake_cluster: FakeCluster) -> None:
    fake_cluster.refusals["pods delete"] = (500, "down")
    error = run_probe(fake_cluster, {"phase": "Succeeded"})
    assert str(error).startswith(
        "cannot delete pod hvdchart-image-check-x1 in namespace team: down"
    )


@pytest.mark.parametrize(("everywhere", "place"), [(False, "namespaces/team/"), (True, "")])
def test_releases_are_those_of_the_namespace_or_of_all(
    fake_cluster: FakeCluster, everywhere: bool, place: str
) -> None:
    run = job()
    fake_cluster.put("jobs", {**run, "metadata": {**run["metadata"], "namespace": "mine"}})
    ((namespace, release),) = Cluster.connect().releases(everywhere=everywhere)
    assert (namespace, release.name, len(release.jobs)) == ("mine", "hvd", 1)
    assert {request.url for request in fake_cluster.requests} == {
        f"/apis/batch/v1/{place}jobs",
        f"/apis/apps/v1/{place}statefulsets",
        f"/api/v1/{place}pods",
    }


def test_an_object_is_found_or_there_is_none(fake_cluster: FakeCluster) -> None:
    cluster = Cluster.connect()
    fake_cluster.put("networkpolicies", named("a"))
    assert cluster.find("networking.k8s.io/v1", "NetworkPolicy", "a") == named("a")
    assert cluster.find("networking.k8s.io/v1", "NetworkPolicy", "b") is None
    fake_cluster.refusals["networkpolicies get"] = (403, "no right")
    with pytest.raises(ClusterError, match="cannot read NetworkPolicy a in namespace team: you a"):
        cluster.find("networking.k8s.io/v1", "NetworkPolicy", "a")


def test_why_a_server_does_not_answer_is_said(kubeconfig_file: Path) -> None:
    write_kubeconfig(kubeconfig_file, f"http://127.0.0.1:{find_port()}")
    with pytest.raises(ClusterError, match=r"the API server does not answer: .*refused"):
        Cluster.connect().all_pods()


def test_releases_are_those_of_the_namespace_by_default(fake_cluster: FakeCluster) -> None:
    assert Cluster.connect().releases() == []
    assert {request.namespace for request in fake_cluster.requests} == {"team"}
