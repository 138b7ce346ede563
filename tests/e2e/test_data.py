"""Data from an S3 server to the nodes, training where they are, and results back to the server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.toolchain.tools import tool
from tests.e2e.cluster import Namespace, Values, node_without_kubelet

KEYS = {"access": "of-this-test-alone", "secret": "no-secret-anywhere"}
# Of each rank: it reads the data, and rank 0 writes what came of it.
TRAIN = """
import os
seen = open('/data/set/numbers').read()
print('SEEN', seen)
if os.environ['OMPI_COMM_WORLD_RANK'] == '0':
    open('/output/model', 'w').write(str(sum(map(int, seen.split()))))
"""


@pytest.fixture
def buckets(node_folder: Path) -> Path:
    """The buckets `data`, which has a data set, and `results`, and what else the pods mount."""
    for name in ("data/set", "results", "node", "output", "tools"):
        (node_folder / name).mkdir(parents=True)
    shutil.copy(tool("rclone"), node_folder / "tools" / "rclone")
    (node_folder / "data/set/numbers").write_text("1 2 3")
    for path in [node_folder, *node_folder.rglob("*")]:
        shutil.chown(path, 1000, 1000)
    return node_folder


@pytest.fixture
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


@pytest.fixture
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


def events(namespace: Namespace, job: str) -> dict[str, str]:
    """The messages of the Job's events by their reasons."""
    items = namespace.get("events", "--field-selector", f"involvedObject.name={job}")["items"]
    return {item["reason"]: item["message"] for item in items}


def placement(namespace: Namespace) -> Any:
    return namespace.get("statefulset", "hvd-worker")["spec"]["template"]["spec"]["affinity"]


def test_data_go_from_s3_to_the_nodes_once_and_results_go_back(
    privileged: Namespace, buckets: Path, server: str, empty_node: str
) -> None:
    first = values(buckets, server, "first")
    assert privileged.train("hvd", first).count("SEEN 1 2 3") == 2
    assert (buckets / "results/first/model").read_text() == "6"
    assert "ResultsStored" in events(privileged, privileged.job("hvd"))
    (record,) = privileged.get("configmaps", "--selector=horovod/record=staged")["items"]
    assert empty_node not in record["data"]
    privileged.helm("uninstall", "hvd")
    privileged.wait_for_no_workers("hvd")

    # Another release finds the data where they are. The server does not have them any more.
    (buckets / "data/set/numbers").unlink()
    second = values(buckets, server, "second")
    second["worker"]["tolerations"] = [{"key": "hvd-test", "value": empty_node}]
    second["worker"]["env"].append({"name": "ANOTHER", "value": "run"})
    second["staging"]["nodes"] = "Required"
    # What goes wrong with the results is told, and the training has finished all the same.
    second["results"] |= {"command": ["false"], "timeoutSeconds": 9}
    second["cleanup"] = "Never"
    privileged.train("hvd", second)
    (condition,) = placement(privileged)["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert condition["matchExpressions"][0]["values"] == sorted(record["data"])
    for number in (0, 1):
        name = f"hvd-worker-{number}"
        assert privileged.get("pod", name)["spec"]["nodeName"] in record["data"]
        log = privileged.kubectl("logs", name, "--container", "staging")
        assert "/data/set is filled: 1 files" in log
    told = events(privileged, privileged.job("hvd"))
    assert "Finished" in told
    assert "results.command failed with exit code" in told["ResultsNotStored"]
