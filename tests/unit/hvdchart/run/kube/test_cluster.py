"""What is read from a cluster, over real HTTP from a small API server."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from urllib3.util import connection

from hvdchart.errors import ClusterError
from hvdchart.run.kube.api import MAX_LINE_BYTES, ApiClient
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.kubeconfig import find_connection
from hvdchart.run.kube.kubectl import Kubectl
from hvdchart.run.kube.runs import find_leftovers, read_release
from tests.support.fakes import faults
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.faults import Failure
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.objects import MASTER, STATEFUL_SET, WORKERS, event, job

pytestmark = pytest.mark.timeout(120)


def named(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


@pytest.mark.parametrize(
    ("words", "namespace"),
    [
        ({}, "team"),
        ({"namespace": "mine"}, "mine"),
        ({"context": "other"}, "default"),
        ({"context": "other", "namespace": "mine"}, "mine"),
    ],
    ids=["context", "own namespace", "context without one", "both"],
)
def test_connection_uses_the_namespace_of_its_context_unless_set(
    fake_cluster: FakeCluster, words: dict[str, str], namespace: str
) -> None:
    assert Cluster.connect(**words).namespace == namespace


def test_release_has_its_own_objects_and_events_in_order(fake_cluster: FakeCluster) -> None:
    """The cluster has others as well."""
    fake_cluster.put("jobs", job(), named("other"))
    fake_cluster.put("statefulsets", STATEFUL_SET, named("other"))
    fake_cluster.put("pods", MASTER, *WORKERS, named("other"))
    fake_cluster.put(
        "events",
        event("hvd-worker-0", "Pod", "Second", "", at="2026-01-01T10:00:02Z"),
        event("hvd-worker-0", "Pod", "First", "", at="2026-01-01T10:00:01Z"),
        event("other", "Pod", "Third", ""),
    )
    release = read_release(Cluster.connect(), "hvd")
    assert (len(release.jobs), len(release.stateful_sets), len(release.pods)) == (1, 1, 3)
    assert (release.name, release.record) == ("hvd", {})
    assert [read_event["reason"] for read_event in release.events] == ["First", "Second"]


LINES = ["first", "Grüße", "", "long" * 20_000]


@pytest.mark.parametrize(
    ("words", "lines"),
    [({}, LINES), ({"tail": 1}, LINES[-1:])],
    ids=["whole", "last lines"],
)
def test_log_is_split_into_lines(
    fake_cluster: FakeCluster, words: dict[str, Any], lines: list[str]
) -> None:
    fake_cluster.log("hvd-0", *LINES, end=True)
    assert list(Cluster.connect().log("hvd-0", "worker", **words)) == lines
    assert fake_cluster.requests[-1].query["container"] == "worker"


def test_log_may_end_without_a_line_end(fake_cluster: FakeCluster) -> None:
    fake_cluster.fail("GET", "core/pods/hvd-1/log", faults.text(200, "a\nno line end"))
    lines = list(Cluster.connect().log("hvd-1", "worker"))
    assert lines == ["a", "no line end"]


@pytest.mark.timeout(20)
def test_log_without_line_ends_is_read_in_parts_and_in_time(fake_cluster: FakeCluster) -> None:
    """Its time is no square of its length: that of 100 MB was 95 s."""
    size = 80 << 20
    answer = faults.text(200, f"first\n{'.' * size}\nlast\n")
    fake_cluster.fail("GET", "core/pods/hvd-1/log", answer)
    first, *parts, last = Cluster.connect().log("hvd-1", "worker")
    assert (first, sum(map(len, parts)), last) == ("first", size, "last")
    assert max(map(len, parts)) < MAX_LINE_BYTES + (1 << 20)


def test_silent_connection_is_probed(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway forgets a connection on which nothing is sent; its end never comes."""
    probed: list[int] = []
    create = connection.create_connection

    def create_connection(*arguments: Any, **named: Any) -> socket.socket:
        made = create(*arguments, **named)
        probed.append(made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        return made

    monkeypatch.setattr(connection, "create_connection", create_connection)
    Cluster.connect().version()
    assert probed == [1]


@pytest.mark.parametrize("place", ["http://127.0.0.1:1", "https://elsewhere.example"])
@pytest.mark.promise("redirects are not followed")
def test_a_redirect_is_not_followed(fake_cluster: FakeCluster, place: str) -> None:
    """It would take the answer of another server, without encryption perhaps, for the cluster's."""
    fake_cluster.fail("GET", "core/pods", faults.status(307, "moved", Location=f"{place}/x"))
    match = rf"redirects to {place}/x \(HTTP 307\).*cluster\.server"
    with pytest.raises(ClusterError, match=match):
        read_release(Cluster.connect(), "hvd")
    assert not any(request.path.endswith("/x") for request in fake_cluster.requests)


@pytest.mark.parametrize(
    ("is_input", "is_output", "option"), [(True, True, "-it"), (True, False, "-i")]
)
def test_a_terminal_is_asked_for_where_there_is_one(
    programs: Path, monkeypatch: pytest.MonkeyPatch, is_input: bool, is_output: bool, option: str
) -> None:
    kubectl = StubProgram(programs, "kubectl")
    monkeypatch.setattr("sys.stdin.isatty", lambda: is_input)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_output)
    assert Kubectl("team").run_in("hvd-0", "worker", ["ls"]) == 0
    assert kubectl.calls[-1].arguments[2:5] == ["exec", option, "hvd-0"]


@pytest.mark.parametrize(
    ("refused", "named"), [(("create", "delete"), "create"), (("delete",), "delete")]
)
def test_a_refused_creation_is_reported_if_deletion_is_refused_too(
    fake_cluster: FakeCluster, refused: tuple[str, ...], named: str
) -> None:
    fake_cluster.refusals = {f"pods {verb}": (403, f"may not {verb}") for verb in refused}
    with (
        pytest.raises(ClusterError, match=f"may not {named}"),
        Cluster.connect().present("pods", {"metadata": {"name": "probe"}}),
    ):
        pass


def test_failure_of_a_block_is_reported_where_the_deletion_is_refused(
    fake_cluster: FakeCluster,
) -> None:
    fake_cluster.refusals = {"pods delete": (403, "may not delete")}
    with (
        pytest.raises(ClusterError, match="does not start"),
        Cluster.connect().present("pods", {"metadata": {"name": "probe"}}),
    ):
        raise ClusterError("it does not start")


@pytest.mark.parametrize("group", ["scheduling.k8s.io", "scheduling.volcano.sh"])
def test_gang_is_looked_for_in_the_apis_that_the_chart_uses(
    fake_cluster: FakeCluster, group: str
) -> None:
    find_leftovers(Cluster.connect(), "hvd")
    path = f"/apis/{group}/v1beta1/namespaces/team/podgroups"
    assert path in [request.url for request in fake_cluster.requests]


def ask(api: ApiClient, method: str) -> None:
    """List Jobs, or create one."""
    path = "apis/batch/v1/namespaces/team/jobs"
    api.get("list jobs", path) if method == "GET" else api.create("create a job", path, job())


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("failure", "seconds", "reason"),
    [(faults.silence, 0.2, "timed out"), (faults.reset, 60.0, "reset")],
    ids=["silence", "reset"],
)
def test_request_without_an_answer_is_not_repeated(
    fake_cluster: FakeCluster, method: str, failure: Failure, seconds: float, reason: str
) -> None:
    """The commands that wait for the API server repeat their requests themselves."""
    fake_cluster.fail(method, "batch/jobs", failure, times=9)
    api = ApiClient(find_connection(), seconds)
    with pytest.raises(ClusterError, match=reason):
        ask(api, method)
    fake_cluster.wait(lambda: bool(fake_cluster.asked(method, "batch/jobs")))
    assert len(fake_cluster.asked(method, "batch/jobs")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_throttled_request_waits_as_long_as_the_api_server_asks(
    fake_cluster: FakeCluster, method: str
) -> None:
    """The API server has not begun with it: a creation can be repeated, too."""
    fake_cluster.fail(method, "batch/jobs", faults.status(429, Retry_After="1"), times=2)
    ask(ApiClient(find_connection()), method)
    assert len(fake_cluster.asked(method, "batch/jobs")) == 3


@pytest.mark.parametrize(
    "failure",
    [
        faults.status(429, Retry_After="31"),
        faults.status(429, Retry_After=400 * "9"),
        faults.status(429, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
        faults.status(429),
        faults.status(503, Retry_After="1"),
    ],
    ids=["too long", "beyond a float", "a date", "no time", "another status"],
)
def test_other_refused_request_is_not_repeated(fake_cluster: FakeCluster, failure: Failure) -> None:
    fake_cluster.fail("POST", "batch/jobs", failure, times=9)
    with pytest.raises(ClusterError, match="on purpose"):
        ask(ApiClient(find_connection()), "POST")
    assert len(fake_cluster.asked("POST", "batch/jobs")) == 1
