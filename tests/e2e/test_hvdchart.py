"""The command against a real cluster: discover, deploy, status, logs, events, undeploy."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devtools.toolchain.tools import tool
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from tests.e2e.cluster import Namespace, wait_until

RANK = "import os; print('I am rank', os.environ['OMPI_COMM_WORLD_RANK'])"


def hvdchart(namespace: Namespace, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command on the cluster, as a person does."""
    return namespace.call(sys.executable, "-m", "hvdchart", *arguments)


def here(namespace: Namespace, helm: str = "helm3") -> list[str]:
    """The options that name the namespace and Helm."""
    return ["--namespace", namespace.name, "--helm", str(tool(helm))]


def write_spec(folder: Path, namespace: Namespace, command: list[str], **more: Any) -> str:
    """A spec of two small workers that share the machine."""
    repository, _, tag = namespace.image.rpartition(":")
    node = {"name": "n", "count": 2, "shared": True, "coresPerSocket": 1, "memory": "512Mi"}
    spec = {
        "apiVersion": "hvdchart/v1",
        "name": "hvd",
        "nodes": [{**node, "tuning": {"cpu": "50m"}}],
        "image": {"repository": repository, "tag": tag, **more.pop("image", {})},
        "train": {"command": command, "retries": 0},
        "launch": {"hostsTimeoutSeconds": 60},
        **more,
    }
    path = folder / "run.spec.yaml"
    path.write_text(json.dumps(spec))
    return str(path)


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_a_run_from_deploy_to_undeploy(namespace: Namespace, tmp_path: Path, helm: str) -> None:
    spec = write_spec(tmp_path, namespace, ["python3", "-c", RANK])
    done = hvdchart(namespace, "deploy", spec, *here(namespace, helm))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "revision 1: 2 ranks on 2 workers" in done.stderr
    assert "hvd: finished" in done.stderr
    lines = done.stdout.splitlines()
    for rank in "01":
        assert any("[hvd-master-" in line and f"I am rank {rank}" in line for line in lines)
    assert any(line.startswith("[hvd-worker-") for line in lines)

    where = ["--namespace", namespace.name]
    again = hvdchart(namespace, "logs", "hvd", "--master", "--tail", "1", *where)
    assert again.stdout.endswith("workers scaled to 0\n"), again.stdout + again.stderr
    state = json.loads(hvdchart(namespace, "status", "hvd", "-o", "json", *where).stdout)
    assert (state["state"], state["attempt"]) == ("finished", 1)
    assert "Job/hvd-master-" in hvdchart(namespace, "events", "hvd", *where).stdout

    assert hvdchart(namespace, "undeploy", "hvd", *here(namespace, helm)).returncode == 0
    assert namespace.get("all,secrets")["items"] == []
    gone = hvdchart(namespace, "undeploy", "hvd", *here(namespace, helm))
    assert (gone.returncode, "not found" in gone.stderr) == (6, True), gone.stderr
    assert hvdchart(namespace, "status", "hvd", *where).returncode == 7


def test_a_run_that_fails(namespace: Namespace, tmp_path: Path) -> None:
    spec = write_spec(tmp_path, namespace, ["pyhton", "train.py"])
    done = hvdchart(namespace, "deploy", spec, *here(namespace))
    assert done.returncode == 8, done.stdout + done.stderr
    assert "run hvd failed: mpirun ended with exit code 78" in done.stderr
    assert "command 'pyhton' is not on PATH" in done.stdout
    status = hvdchart(namespace, "status", "hvd", "--namespace", namespace.name)
    assert status.returncode == 8
    assert "why: mpirun ended with exit code 78" in status.stdout
    assert "command 'pyhton' is not on PATH" in status.stdout, "the log's last lines"


def test_why_a_run_does_not_start(namespace: Namespace, tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path, namespace, ["python3", "-V"],
        image={"repository": "no-such-image"},
        volumes={"data": {"hostPath": "/mnt/data", "readOnly": True}},
    )  # fmt: skip
    where = ["--namespace", namespace.name]
    refused = [*here(namespace), "--detach"]
    assert hvdchart(namespace, "deploy", spec, *refused).returncode == 0
    reason = _reason(namespace, "violates PodSecurity")
    assert reason["state"] == "waiting"
    assert "no pod could be made" in reason["reason"]
    # The same run without the volume that the namespace refuses.
    changed = ["--set", "volumes.data.hostPath=null", "--set", "volumes.data.emptyDir={}"]
    done = hvdchart(namespace, "deploy", spec, *changed, *refused)
    assert done.returncode == 0, done.stderr
    reason = _reason(namespace, "no-such-image")
    assert "ImagePull" in reason["reason"]
    assert "image.repository" in reason["advice"]
    assert hvdchart(namespace, "logs", "nope", *where).returncode == 7
    # Without it the master is not made either: nobody in the namespace can tell.
    changed += ["--set", "values.priorityClassName=no-such-class"]
    assert hvdchart(namespace, "deploy", spec, *changed, *refused).returncode == 0
    reason = _reason(namespace, "no PriorityClass with name no-such-class was found")
    assert reason["state"] == "waiting"
    assert "priorityClassName" in reason["advice"]


def _reason(namespace: Namespace, expected: str) -> dict[str, Any]:
    """The status, once its reason says what is expected."""
    found: dict[str, Any] = {}

    def told() -> bool:
        output = hvdchart(
            namespace, "status", "hvd", "-o", "json", "--namespace", namespace.name
        ).stdout
        found.update(json.loads(output))
        return expected in found["reason"]

    wait_until(told, 60, f"a status with {expected!r}")
    return found


# Faster with more threads, so that the best setting is known.
SPEED = (
    "import json, os; n = int(os.environ['TF_NUM_INTRAOP_THREADS']); "
    "print('RESULT', json.dumps({'imagesPerSecond': n * 10}))"
)


def test_tune(namespace: Namespace, tmp_path: Path) -> None:
    spec = write_spec(tmp_path, namespace, ["python3", "-V"])
    command = f"python3 -c {shlex.quote(SPEED)}"
    tries = ["--intra", "1,3", "--inter", "1", "--repeat", "2", "--confirm", "1"]
    tries += ["--command", command]
    done = hvdchart(namespace, "tune", spec, *tries, *here(namespace))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4/4     30.00" in done.stderr
    assert "2/2     30.00" in done.stderr, "what beats the plan is measured once more"
    assert "The best is +200.0% on the plan." in done.stdout
    assert "intraOpThreads: 3" in done.stdout
    assert namespace.get("statefulsets,jobs")["items"] == [], "the run was left"


def test_discover(namespace: Namespace) -> None:
    done = hvdchart(namespace, "discover")
    assert done.returncode == 0, done.stderr
    spec = parse_spec(done.stdout.encode())
    nodes = namespace.get("nodes")["items"]
    assert sum(group.count for group in spec.nodes) == len(nodes)
    assert nodes[0]["metadata"]["name"] in done.stdout
    plan = make_plan(spec).groups[0]
    assert plan.cpu is not None
    assert plan.cpu < int(nodes[0]["status"]["capacity"]["cpu"]) * 1000
    none = hvdchart(namespace, "discover", "--selector", "no=such")
    assert (none.returncode, "no nodes with labels no=such" in none.stderr) == (7, True)


def test_discover_sees_what_others_request(namespace: Namespace) -> None:
    """A planned worker takes all of a node, so one pod of another's is in its way."""
    free = {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False}
    context = {"runAsNonRoot": True, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}}
    container: dict[str, Any] = {"name": "a", "image": namespace.image, "command": ["sleep", "60"]}
    container |= {"resources": {"requests": {"memory": "1Gi"}}, "securityContext": free}
    spec = {"securityContext": context, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": spec}
    namespace.kubectl("apply", "--filename", "-", input=json.dumps(pod))
    namespace.kubectl("wait", "pod/other", "--for=condition=PodScheduled", "--timeout=30s")
    done = hvdchart(namespace, "discover", "--fit", "1")
    assert done.returncode == 7, done.stdout
    assert "1 ranks do not fit now: 0 do" in done.stderr
    assert "Mi memory free of" in done.stderr


def test_what_is_not_allowed_is_said(namespace: Namespace, tmp_path: Path) -> None:
    config = json.loads(namespace.kubectl("config", "view", "--raw", "--output", "json"))
    token = namespace.kubectl("create", "token", "default").strip()
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    kubeconfig = tmp_path / "nobody.json"
    kubeconfig.write_text(json.dumps(config))
    nobody = Namespace(namespace.name, kubeconfig, namespace.image)
    for arguments in (["discover"], ["status", "hvd", "--namespace", namespace.name]):
        done = hvdchart(nobody, *arguments)
        assert done.returncode == 7
        assert "you are not allowed to" in done.stderr
        assert "Traceback" not in done.stderr


def test_an_image_is_checked_in_a_pod(namespace: Namespace) -> None:
    where = ("--in-cluster", "--namespace", namespace.name)
    good = hvdchart(namespace, "image", "check", namespace.image, *where)
    assert good.returncode == 0, good.stdout + good.stderr
    assert "with mpi, gloo" in good.stdout
    gone = hvdchart(namespace, "image", "check", "registry.invalid/no-such:1", *where)
    assert gone.returncode == 7
    assert "ImagePull" in gone.stderr
    assert namespace.get("pods")["items"] == [], "a pod that asked is left"
