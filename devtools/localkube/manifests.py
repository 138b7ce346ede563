"""The objects that the cluster itself needs."""

from __future__ import annotations

import json

COREDNS = "system:coredns"


def _rule(group: str, *resources: str) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": ["list", "watch"]}


def bootstrap() -> str:
    """The role of CoreDNS, which logs in as the user system:coredns, and its binding, as JSON."""
    rbac = "rbac.authorization.k8s.io"
    role = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": COREDNS},
        "rules": [
            _rule("", "namespaces", "pods", "services"),
            _rule("discovery.k8s.io", "endpointslices"),
        ],
    }
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": COREDNS},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": COREDNS},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": COREDNS}],
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [role, binding]})
