"""Data from an S3 server to the nodes, training where they are, and results back to the server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.toolchain.tools import tool
from tests.support.namespace import Namespace, Values, node_without_kubelet

KEYS = {"access": "of-this-test-alone", "secret": "no-secret-anywhere"}
# Of each rank: it reads the data, and rank 0 writes what came of it.
TRAIN = """
import os
seen = open('/data/set/numbers').read()
print('SEEN', seen)
if os.environ['OMPI_COMM_WORLD_RANK'] == '0':
    open('/output/model', 'w').write(str(sum(map(int, seen.split()))))
"""


@pytest.fixture(scope="class")
def buckets(node_folder: Path) -> Path:
    """The buckets `data`, which has a data set, and `results`, and what else the pods mount."""
    for name in ("data/set", "results", "node", "output", "tools"):
        (node_folder / name).mkdir(parents=True)
    shutil.copy(tool("rclone"), node_folder / "tools" / "rclone")
    (node_folder / "data/set/numbers").write_text("1 2 3")
    for path in [node_folder, *node_folder.rglob("*")]:
        shutil.chown(path, 1000, 1000)
    return node_folder


@pytest.fixture(scope="class")
def server(privileged: Namespace, buckets: Path) -> str:
    """The URL of an S3 server with these buckets, and a Secret with its keys."""
    literals = [f"--from-literal={name}={value}" for name, value in KEYS.items()]
    privileged.kubectl("create", "secret", "generic", "s3", *literals)
    command = ["/s3/tools/rclone", "serve", "s3", "--addr=:9000", "/s3"]
    container = {
        "name": "s3",
        "image": privileged.image,
        "command": [*command, f"--auth-key={','.join(KEYS.values())}"],
        "env": [{"name": "HOME", "value": "/tmp"}],
        "readinessProbe": {"tcpSocket": {"port": 9000}, "periodSeconds": 1},
        "volumeMounts": [{"name": "s3", "mountPath": "/s3"}],
    }
    spec = {
        "securityContext": {"runAsUser": 1000, "runAsGroup": 1000},
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "s3", "hostPath": {"path": str(buckets)}}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "s3"}, "spec": spec}
    privileged.apply(pod)
    privileged.kubectl("wait", "pod/s3", "--for=condition=Ready", "--timeout=180s")
    return f"http://{privileged.get('pod', 's3')['status']['podIP']}:9000"


@pytest.fixture(scope="class")
def empty_node(privileged: Namespace) -> Iterator[str]:
    """A large and idle node that every pod may run on, and that has no kubelet to run it."""
    name = f"empty-{privileged.name[-8:]}"
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    with node_without_kubelet(privileged, name, labels, capacity, capacity):
        yield name


def values(buckets: Path, server: str, run: str) -> Values:
    """A run that fetches the data set to its nodes, and stores its results under its name."""
    folders = {"data": "node", "output": "output", "tools": "tools"}
    key = {"access": "ACCESS_KEY_ID", "secret": "SECRET_ACCESS_KEY"}
    remote = [
        {"name": "RCLONE_CONFIG_S3_TYPE", "value": "s3"},
        {"name": "RCLONE_CONFIG_S3_PROVIDER", "value": "Rclone"},
        {"name": "RCLONE_CONFIG_S3_ENDPOINT", "value": server},
        *(
            {
                "name": f"RCLONE_CONFIG_S3_{variable}",
                "valueFrom": {"secretKeyRef": {"name": "s3", "key": name}},
            }
            for name, variable in key.items()
        ),
    ]
    return {
        "worker": {"number": 2, "env": [{"name": "OUTPUT_PATH", "value": "/output"}]},
        "master": {"args": ["python3", "-c", TRAIN], "backoffLimit": 0},
        "volumes": [
            {"name": name, "hostPath": {"path": str(buckets / folder)}}
            for name, folder in folders.items()
        ],
        "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in folders],
        "staging": {
            "path": "/data/set",
            "command": ["/tools/rclone", "copy", "s3:data/set", "."],
            "env": remote,
        },
        "results": {"command": ["/tools/rclone", "copy", ".", f"s3:results/{run}"], "env": remote},
    }


def reasons(namespace: Namespace, job: str) -> set[str]:
    """The reasons of the Job's events."""
    items = namespace.get("events", "--field-selector", f"involvedObject.name={job}")["items"]
    return {item["reason"] for item in items}


def node_list(namespace: Namespace) -> dict[str, str]:
    """The nodes that have the data, as the release has listed them."""
    (item,) = namespace.get("configmaps", "--selector=hvdchart/node-list")["items"]
    nodes: dict[str, str] = item["data"]
    return nodes


@pytest.fixture(scope="class")
def first_log(privileged: Namespace, buckets: Path, server: str, empty_node: str) -> str:
    """The log of a run that has fetched the data and stored its results."""
    return privileged.train("hvd", values(buckets, server, "first"))


@pytest.fixture(scope="class")
def staged_nodes(
    first_log: str, privileged: Namespace, buckets: Path, server: str, empty_node: str
) -> list[str]:
    """The nodes that the first run has listed, after a second release has run with its data.

    The server does not have the data any more, and the second run cannot store its results.
    """
    nodes = sorted(node_list(privileged))
    privileged.helm("uninstall", "hvd")
    privileged.wait_for_no_workers("hvd")
    (buckets / "data/set/numbers").unlink()
    second = values(buckets, server, "second")
    second["worker"]["tolerations"] = [{"key": "hvd-test", "value": empty_node}]
    second["worker"]["env"].append({"name": "ANOTHER", "value": "run"})
    second["staging"]["nodes"] = "Required"
    second["results"] |= {"command": ["false"], "timeoutSeconds": 9}
    second["cleanup"] = "Never"
    privileged.train("hvd", second)
    return nodes


class TestDataFromS3:
    def test_each_rank_reads_the_data(self, first_log: str) -> None:
        assert first_log.count("SEEN 1 2 3") == 2

    def test_results_go_back_to_the_server(
        self, first_log: str, privileged: Namespace, buckets: Path
    ) -> None:
        assert (buckets / "results/first/model").read_text() == "6"
        assert "ResultsStored" in reasons(privileged, privileged.job("hvd"))

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

    def test_training_has_finished_although_its_results_are_not_stored(
        self, staged_nodes: list[str], privileged: Namespace
    ) -> None:
        reported = reasons(privileged, privileged.job("hvd"))
        assert {"Finished", "ResultsNotStored"} <= reported
