"""Whether the cluster enforces NetworkPolicies: test it with a policy and two pods in seconds.

Many network plugins accept policies and ignore them silently. Only a pod that a policy blocks can
detect that.
"""

from __future__ import annotations

from importlib.resources import files

from hvd_pods.shared.contract import NAME_LABEL
from hvd_pods.shared.network_policies import UNENFORCED
from hvdchart.doctor.findings import Finding
from hvdchart.doctor.policy_probe import ADMITTED_PORT, POLICY_PROBE_MARK
from hvdchart.errors import ClusterError
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.pods import restricted_pod, run_pod, wait_for_pod
from hvdchart.run.state.release import Object

_SUBJECT = "network policies"
_PURPOSE = "policy-probe"
# The label with the name of the pod to which the policy applies.
_TARGET_LABEL = "hvdchart/target"


def examine_policies(cluster: Cluster, image: str) -> Finding:
    """Connect from a pod of this image to another one, which a policy admits to one port only.

    The policy and the pods are deleted at the end, also after an exception. If the policy remains,
    Kubernetes deletes it together with the first pod, which owns it.
    """
    program = files("hvdchart.doctor").joinpath("policy_probe.py").read_text("utf-8")
    command = ["python3", "-I", "-c", program]
    target = restricted_pod(_PURPOSE, image, [*command, "listen"])
    name = target["metadata"]["name"]
    target["metadata"]["labels"][_TARGET_LABEL] = name
    try:
        with (
            cluster.present("pods", target) as created,
            cluster.present("networkpolicies", _policy(created)),
        ):
            pod = wait_for_pod(cluster, name, ("Running", "Succeeded", "Failed"))
            address = pod["status"].get("podIP", "")
            output = run_pod(
                cluster, restricted_pod(_PURPOSE, image, [*command, "connect", address])
            )
    except ClusterError as error:
        return Finding(_SUBJECT, "unknown", str(error))
    result = next((line for line in output.splitlines() if line.startswith(POLICY_PROBE_MARK)), "")
    if result == f"{POLICY_PROBE_MARK}enforced":
        return Finding(_SUBJECT, "ok", "enforced: a pod that none admits could not connect")
    if result == f"{POLICY_PROBE_MARK}open":
        text = "nothing enforces them: a pod that none admits could connect"
        return Finding(_SUBJECT, "problem", text, UNENFORCED)
    last = output.strip().splitlines()[-1:] or ["it printed nothing"]
    return Finding(_SUBJECT, "unknown", f"the probe of {image} has not found out: {last[0]}")


def _policy(target: Object) -> Object:
    """Return a policy that opens one port of a pod to everybody, and blocks the other ports.

    The pod owns the policy: deleting the pod deletes the policy, too.
    """
    metadata = target["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": metadata["name"],
            "labels": {NAME_LABEL: f"hvdchart-{_PURPOSE}"},
            "ownerReferences": [owner],
        },
        "spec": {
            "podSelector": {"matchLabels": {_TARGET_LABEL: metadata["name"]}},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": ADMITTED_PORT}]}],
        },
    }
