"""Who reaches the pods of a release, on a real cluster with a real enforcer of NetworkPolicies."""

from __future__ import annotations

from tests.e2e.cluster import Namespace, Values
from tests.e2e.policy import enforcing

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
# The pod's own word on what it may do.
CAPABILITIES = (
    "print('CAPS', [l.split()[1] for l in open('/proc/self/status') if 'CapEff' in l][0])"
)
# What the chart gives sshd of root, and the one that the test is about; of linux/capability.h.
OF_ROOT = {"SETGID": 6, "SETUID": 7, "SYS_CHROOT": 18, "IPC_LOCK": 14}
ROOT: Values = {"podSecurityContext": {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}}


def staying(**more: object) -> Values:
    """A short run whose workers stay."""
    args = ["python3", "-c", "print('trained')"]
    base: Values = {"worker": {"number": 1}, "cleanup": "Never"}
    base["master"] = {"args": args, "backoffLimit": 0}
    return {**base, "launch": {"hostsTimeoutSeconds": 30}, **more}


BOARD: Values = {
    "tensorboard": {"enabled": True, "logDir": "/logs"},
    "volumes": [{"name": "logs", "emptyDir": {}}],
    "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
}


def probe(namespace: Namespace, source: str, target: str, port: int = PORT) -> str:
    """What comes of a connection from one pod to another's SSH port, or to another port."""
    address = namespace.get("pod", target)["status"]["podIP"]
    program = ["python3", "-c", PROBE, address, str(port)]
    return namespace.kubectl("exec", source, "--container", "worker", "--", *program).strip()


def test_network_policy_admits_only_pods_of_the_release(namespace: Namespace) -> None:
    with enforcing():
        namespace.install("guarded", staying(worker={"number": 2}, **BOARD))
        namespace.install("open", staying(networkPolicy={"enabled": False}))
        for release in ("guarded", "open"):
            # The master's SSH and the ranks' MPI are not in the policy's way.
            assert namespace.wait_for_end(release) == "Complete", namespace.describe(release)
        assert probe(namespace, "guarded-worker-0", "guarded-worker-1") == "open"
        assert probe(namespace, "guarded-worker-0", "open-worker-0") == "open"
        assert probe(namespace, "open-worker-0", "guarded-worker-0") == "blocked"
        ready = ("deployment/guarded-tensorboard", "--for=condition=Available")
        namespace.kubectl("wait", *ready, "--timeout=60s")
        (board,) = namespace.get("pods", "--selector", "app.kubernetes.io/component=tensorboard")[
            "items"
        ]
        # Nobody is in tensorboard.allowFrom, not even the release's own pods.
        for source in ("guarded-worker-0", "open-worker-0"):
            assert probe(namespace, source, board["metadata"]["name"], 6006) == "blocked"
    # The policies did it, not something else.
    assert probe(namespace, "open-worker-0", "guarded-worker-0") == "open"
    assert probe(namespace, "open-worker-0", board["metadata"]["name"], 6006) == "open"


def test_run_trains_on_the_host_network(privileged: Namespace) -> None:
    privileged.install("hvd", staying(hostNetwork=True, hostPID=True, ssh={"port": 23022}))
    assert privileged.wait_for_end("hvd") == "Complete", privileged.describe("hvd")
    status = privileged.get("pod", "hvd-worker-0")["status"]
    assert status["podIP"] == status["hostIP"]
    (first,) = privileged.kubectl("exec", "hvd-worker-0", "--", "cat", "/proc/1/comm").split()
    assert first != "sshd", "with hostPID, process 1 is the node's"


def test_added_capability_reaches_the_ranks_of_root(privileged: Namespace) -> None:
    worker = {"number": 1, "capabilities": ["IPC_LOCK"]}
    master = {"args": ["python3", "-c", CAPABILITIES], "backoffLimit": 0}
    values = staying(worker=worker, master=master, **ROOT)
    privileged.install("hvd", values)
    assert privileged.wait_for_end("hvd") == "Complete", privileged.describe("hvd")
    (line,) = [line for line in privileged.log("hvd").splitlines() if line.startswith("CAPS ")]
    assert int(line.split()[1], 16) == sum(1 << bit for bit in OF_ROOT.values())
