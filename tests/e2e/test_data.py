"""Data from a server to the nodes, and training where they are."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.namespace import Namespace, Values, node_without_kubelet

TOKEN = "of-this-test-alone"
# A server of the files in its folder, for those who have the token.
SERVE = """
import http, http.server, os
class Files(http.server.SimpleHTTPRequestHandler):
    def parse_request(self):
        if not super().parse_request():
            return False
        if self.headers['Authorization'] != os.environ['TOKEN']:
            self.send_error(http.HTTPStatus.UNAUTHORIZED)
            return False
        return True
http.server.ThreadingHTTPServer(('', 9000), Files).serve_forever()
"""
# Get the file of a URL into this folder.
GET = """
import os, shutil, sys, urllib.request
wanted = urllib.request.Request(sys.argv[1], headers={'Authorization': os.environ['TOKEN']})
with urllib.request.urlopen(wanted) as answer, open(os.path.basename(sys.argv[1]), 'wb') as file:
    shutil.copyfileobj(answer, file)
"""
# Of each rank: it reads the data.
TRAIN = "print('SEEN', open('/data/set/numbers').read())"


@pytest.fixture(scope="class")
def folders(node_folder: Path) -> Path:
    """The server's folder `data`, which has a data set, and what the pods mount."""
    for name in ("data/set", "node"):
        (node_folder / name).mkdir(parents=True)
    (node_folder / "data/set/numbers").write_text("1 2 3")
    for path in [node_folder, *node_folder.rglob("*")]:
        shutil.chown(path, 1000, 1000)
    return node_folder


@pytest.fixture(scope="class")
def server(privileged: Namespace, folders: Path) -> str:
    """The URL of a server with these folders, and a Secret with its token."""
    privileged.kubectl("create", "secret", "generic", "server", f"--from-literal=token={TOKEN}")
    container = {
        "name": "server",
        "image": privileged.image,
        "command": ["python3", "-c", SERVE],
        "workingDir": "/served",
        "env": [{"name": "TOKEN", "value": TOKEN}],
        "readinessProbe": {"tcpSocket": {"port": 9000}, "periodSeconds": 1},
        "volumeMounts": [{"name": "served", "mountPath": "/served"}],
    }
    spec = {
        "securityContext": {"runAsUser": 1000, "runAsGroup": 1000},
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "served", "hostPath": {"path": str(folders)}}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "server"}, "spec": spec}
    privileged.apply(pod)
    privileged.kubectl("wait", "pod/server", "--for=condition=Ready", "--timeout=180s")
    return f"http://{privileged.get('pod', 'server')['status']['podIP']}:9000"


@pytest.fixture(scope="class")
def empty_node(privileged: Namespace) -> Iterator[str]:
    """A large and idle node that every pod may run on, and that has no kubelet to run it."""
    name = f"empty-{privileged.name[-8:]}"
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    with node_without_kubelet(privileged, name, labels, capacity, capacity):
        yield name


def values(folders: Path, server: str) -> Values:
    """A run that fetches the data set to its nodes."""
    secret = {"secretKeyRef": {"name": "server", "key": "token"}}
    token = [{"name": "TOKEN", "valueFrom": secret}]
    return {
        "worker": {"number": 2},
        "master": {"args": ["python3", "-c", TRAIN], "backoffLimit": 0},
        "volumes": [{"name": "data", "hostPath": {"path": str(folders / "node")}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "staging": {
            "path": "/data/set",
            "command": ["python3", "-c", GET, f"{server}/data/set/numbers"],
            "env": token,
        },
    }


def node_list(namespace: Namespace) -> dict[str, str]:
    """The nodes that have the data, as the release has listed them."""
    (item,) = namespace.get("configmaps", "--selector=hvdchart/node-list")["items"]
    nodes: dict[str, str] = item["data"]
    return nodes


@pytest.fixture(scope="class")
def first_log(privileged: Namespace, folders: Path, server: str, empty_node: str) -> str:
    """The log of a run that has fetched the data."""
    return privileged.train("hvd", values(folders, server))


@pytest.fixture(scope="class")
def staged_nodes(
    first_log: str, privileged: Namespace, folders: Path, server: str, empty_node: str
) -> list[str]:
    """The nodes that the first run has listed, after a second release has run with its data.

    The server does not have the data any more.
    """
    nodes = sorted(node_list(privileged))
    privileged.helm("uninstall", "hvd")
    privileged.wait_for_no_workers("hvd")
    (folders / "data/set/numbers").unlink()
    second = values(folders, server)
    second["worker"]["tolerations"] = [{"key": "hvd-test", "value": empty_node}]
    second["worker"]["env"] = [{"name": "ANOTHER", "value": "run"}]
    second["staging"]["nodes"] = "Required"
    second["cleanup"] = "Never"
    privileged.train("hvd", second)
    return nodes


class TestDataFromAServer:
    def test_each_rank_reads_the_data(self, first_log: str) -> None:
        assert first_log.count("SEEN 1 2 3") == 2

    def test_node_that_has_no_data_is_not_listed(
        self, first_log: str, privileged: Namespace, empty_node: str
    ) -> None:
        assert empty_node not in node_list(privileged)

    def test_next_release_requires_the_nodes_that_have_the_data(
        self, staged_nodes: list[str], privileged: Namespace
    ) -> None:
        template = privileged.get("statefulset", "hvd-worker")["spec"]["template"]["spec"]
        required = template["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        terms = required["nodeSelectorTerms"]
        assert [term["matchFields"][0]["values"] for term in terms] == [
            [node] for node in staged_nodes
        ]

    @pytest.mark.parametrize("worker", ["hvd-worker-0", "hvd-worker-1"])
    def test_next_release_finds_the_data_on_the_node(
        self, staged_nodes: list[str], privileged: Namespace, worker: str
    ) -> None:
        assert privileged.get("pod", worker)["spec"]["nodeName"] in staged_nodes
        log = privileged.kubectl("logs", worker, "--container", "staging")
        assert "/data/set is filled: 1 files" in log
