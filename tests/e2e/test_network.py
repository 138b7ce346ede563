"""Who reaches the pods of a release, on a real cluster with a real enforcer of NetworkPolicies."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from ruamel.yaml import YAML

from devtools.common.repository import CHART
from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from hvd_pods.master import selftest
from hvd_pods.shared.network_policies import UNENFORCED
from tests.e2e.policy import enforcing
from tests.support.namespace import Namespace, Values

PORT = 2222
# Connects to the address given and says how that went; silence from the other end is "blocked".
PROBE = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2).close()
    print("open")
except TimeoutError:
    print("blocked")
"""
# Answers on the port of Istio's agent and ends when it is asked to.
PROXY = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        os._exit(0)
http.server.HTTPServer(("127.0.0.1", 15020), Handler).serve_forever()
"""
# The pod's own word on what it may do.
CAPABILITIES = (
    "print('CAPS', [l.split()[1] for l in open('/proc/self/status') if 'CapEff' in l][0])"
)
# The number of the capability of this name; of linux/capability.h.
IPC_LOCK = 14
AS_ROOT: Values = {"podSecurityContext": {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}}


def staying(**more: object) -> Values:
    """A short run whose workers stay."""
    args = ["python3", "-c", "print('trained')"]
    base: Values = {"worker": {"number": 1}, "cleanup": "Never"}
    base["master"] = {"args": args, "backoffLimit": 0}
    return {**base, "launch": {"workersTimeoutSeconds": 120}, **more}


BOARD: Values = {
    "tensorboard": {"enabled": True, "logDir": "/logs"},
    # Each namespace has this ConfigMap, and Pod Security `restricted` admits it.
    "volumes": [{"name": "logs", "configMap": {"name": "kube-root-ca.crt"}}],
    "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
}


def probe(namespace: Namespace, source: str, target: str, port: int = PORT) -> str:
    """What comes of a connection from one pod to another's agent, or to another port."""
    address = namespace.get("pod", target)["status"]["podIP"]
    program = ["python3", "-c", PROBE, address, str(port)]
    return namespace.kubectl("exec", source, "--container", "worker", "--", *program).strip()


def assert_open(namespace: Namespace, source: str, target: str, port: int = PORT) -> None:
    """A pod reaches another one; on a busy machine, a connection may be judged late."""

    def is_open() -> bool:
        return probe(namespace, source, target, port) == "open"

    wait_until(is_open, 60, f"{source} reaches {target}", PROGRAM_PAUSE)


def ask_doctor(namespace: Namespace) -> str:
    """What doctor says of NetworkPolicies: the state of its finding."""
    words = ["doctor", "--probe-policies", namespace.image, "--namespace", namespace.name]
    done = namespace.call(sys.executable, "-m", "hvdchart", *words, "--output", "json")
    states = {finding["subject"]: finding["state"] for finding in json.loads(done.stdout)}
    return str(states["network policies"])


def ask_helm_test(namespace: Namespace) -> str:
    """The log of `helm test` of the release with a NetworkPolicy."""
    done = namespace.helm("test", "guarded", "--timeout", "300s")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="class")
def enforced() -> Iterator[ExitStack]:
    """NetworkPolicies hold, until the stack is closed."""
    with ExitStack() as stack:
        stack.enter_context(enforcing())
        yield stack


@pytest.fixture(scope="class")
def two_releases(enforced: ExitStack, namespace: Namespace) -> None:
    """`guarded` has a NetworkPolicy and TensorBoard, `open` has neither."""
    namespace.install("guarded", staying(worker={"number": 2}, **BOARD))
    namespace.install("open", staying(networkPolicy={"enabled": False}))


@pytest.fixture(scope="class")
def board(two_releases: None, namespace: Namespace) -> str:
    """The pod of TensorBoard, which answers."""
    available = ("deployment/guarded-tensorboard", "--for=condition=Available")
    namespace.kubectl("wait", *available, "--timeout=180s")
    listed = namespace.get("pods", "--selector", "app.kubernetes.io/component=tensorboard")
    (pod,) = listed["items"]
    return str(pod["metadata"]["name"])


@pytest.fixture(scope="class")
def lifted(board: str, enforced: ExitStack) -> None:
    """NetworkPolicies do nothing any more."""
    enforced.close()


@pytest.mark.usefixtures("two_releases")
class TestNetworkPolicies:
    @pytest.mark.parametrize("release", ["guarded", "open"])
    def test_run_completes(self, namespace: Namespace, release: str) -> None:
        """The master's agent connections and the ranks' MPI are not in the policy's way."""
        namespace.assert_completes(release)

    @pytest.mark.parametrize("target", ["guarded-worker-1", "open-worker-0"])
    def test_pod_of_the_release_reaches_other_pods(self, namespace: Namespace, target: str) -> None:
        assert_open(namespace, "guarded-worker-0", target)

    @pytest.mark.promise("network policy admits only pods of the release")
    def test_network_policy_admits_only_pods_of_the_release(self, namespace: Namespace) -> None:
        assert probe(namespace, "open-worker-0", "guarded-worker-0") == "blocked"

    @pytest.mark.parametrize("source", ["guarded-worker-0", "open-worker-0"])
    def test_tensorboard_admits_nobody(self, namespace: Namespace, board: str, source: str) -> None:
        """Nobody is in tensorboard.allowFrom, not even the release's own pods."""
        assert probe(namespace, source, board, 6006) == "blocked"

    def test_doctor_and_helm_test_see_that_policies_are_enforced(
        self, namespace: Namespace
    ) -> None:
        assert ask_doctor(namespace) == "ok"
        assert selftest.ENFORCED in ask_helm_test(namespace)

    # The policies blocked these connections, and not something else.
    @pytest.mark.usefixtures("lifted")
    def test_pod_of_another_release_reaches_workers_without_policies(
        self, namespace: Namespace
    ) -> None:
        assert_open(namespace, "open-worker-0", "guarded-worker-0")

    @pytest.mark.usefixtures("lifted")
    def test_pod_of_another_release_reaches_tensorboard_without_policies(
        self, namespace: Namespace, board: str
    ) -> None:
        assert_open(namespace, "open-worker-0", board, 6006)

    @pytest.mark.usefixtures("lifted")
    def test_doctor_and_helm_test_see_that_nothing_enforces_policies(
        self, namespace: Namespace
    ) -> None:
        assert ask_doctor(namespace) == "problem"
        assert UNENFORCED in ask_helm_test(namespace)


def add_proxy(job: Values, native: bool) -> None:
    """Add a stand-in for a mesh's proxy to a Job, as the meshes' webhooks do."""
    spec = job["spec"]["template"]["spec"]
    (master,) = spec["containers"]
    proxy = {key: master[key] for key in ("image", "imagePullPolicy", "securityContext")}
    proxy = {**proxy, "name": "proxy", "command": ["python3", "-c", PROXY]}
    if native:
        spec["initContainers"] = [{**proxy, "restartPolicy": "Always"}]
    else:
        spec["containers"].append(proxy)


@pytest.mark.parametrize("native", [True, False], ids=["native sidecar", "ordinary container"])
def test_run_ends_beside_a_proxy_that_is_held(namespace: Namespace, native: bool) -> None:
    rendered = namespace.helm(
        "template", "hvd", str(CHART), "--no-hooks", values=staying(serviceMesh="Hold")
    )
    manifests = [item for item in YAML(typ="safe").load_all(rendered.stdout) if item]
    (job,) = (item for item in manifests if item["kind"] == "Job")
    add_proxy(job, native)
    text = "\n---\n".join(json.dumps(manifest) for manifest in manifests)
    namespace.kubectl("apply", "--filename", "-", input=text)
    namespace.assert_completes("hvd")
    asked = "asked the mesh's proxy to end (POST /quitquitquit): it answered 200"
    assert asked in namespace.log("hvd")


def test_run_trains_on_the_host_network(privileged: Namespace) -> None:
    worker = {"number": 1, "podSpec": {"hostPID": True}}
    privileged.train("hvd", staying(hostNetwork=True, worker=worker, agent={"port": 23022}))
    status = privileged.get("pod", "hvd-worker-0")["status"]
    assert status["podIP"] == status["hostIP"]
    (first,) = privileged.kubectl("exec", "hvd-worker-0", "--", "cat", "/proc/1/comm").split()
    assert first != "python3", "with hostPID, process 1 is the node's"


def test_added_capability_alone_reaches_the_ranks_of_root(privileged: Namespace) -> None:
    worker = {"number": 1, "capabilities": ["IPC_LOCK"]}
    master = {"args": ["python3", "-c", CAPABILITIES], "backoffLimit": 0}
    values = staying(worker=worker, master=master, **AS_ROOT)
    log = privileged.train("hvd", values)
    (line,) = [line for line in log.splitlines() if line.startswith("CAPS ")]
    assert int(line.split()[1], 16) == 1 << IPC_LOCK
