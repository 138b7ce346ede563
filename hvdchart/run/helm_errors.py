"""Explanations of Helm's known messages, each with its remedy. Pure."""

from __future__ import annotations

# Helm's message when another Helm changes the same release.
BUSY = "another operation (install/upgrade/rollback) is in progress"
# Parts of Helm's messages, in lower case, when there is no connection to the cluster.
UNREACHABLE = "cluster unreachable"
_CREDENTIALS = "the cluster does not accept your credentials: renew those in the kubeconfig"
_TOO_LARGE = (
    "Helm keeps all values in a Secret of at most 1 MiB: put large files of `--code` into an image "
    "or onto a volume"
)
# A part of Helm's message, and what to do. The first match counts.
REMEDIES = {
    "exceeded quota": "ask for a larger quota, or use fewer or smaller workers",
    BUSY: (
        "another command changes this release: try again in a minute. If Helm was killed "
        "instead, delete its pending revision and deploy again: kubectl delete secret "
        "-n {namespace} -l 'owner=helm,name={name},"
        "status in (pending-install,pending-upgrade,pending-rollback)'"
    ),
    "invalid ownership metadata": (
        "objects with that name do not belong to this release: choose another name for the run, or "
        "another namespace"
    ),
    "already exists": (
        "another user has just created it, or Helm does not manage it: try again, or choose "
        "another name for the run"
    ),
    'namespaces "{namespace}" not found': (
        "there is no such namespace: create it with `--create-namespace`, or choose another with "
        "`--namespace`"
    ),
    "is forbidden": (
        "ask for this permission; `hvdchart doctor -n {namespace}` lists all that are missing"
    ),
    "nauthorized": _CREDENTIALS,
    "the server has asked for the client to provide credentials": _CREDENTIALS,
    UNREACHABLE: (
        "the API server does not answer: check the kubeconfig and the network; `hvdchart doctor` "
        "checks each step"
    ),
    "request is too large": _TOO_LARGE,
    "Too long: must have at most 1048576 bytes": _TOO_LARGE,
    "has no deployed releases": (
        "an earlier installation was not completed: run `hvdchart undeploy {name} -n {namespace}` "
        "and deploy again"
    ),
    "context deadline exceeded": (
        "the API server is slow: try again; Helm continues where it stopped"
    ),
}


def remedy_for(message: str, name: str, namespace: str) -> str:
    """Return the remedy for a message of Helm; empty for an unknown message."""
    for sign, remedy in REMEDIES.items():
        if sign.replace("{namespace}", namespace).lower() in message.lower():
            return remedy.format(name=name, namespace=namespace)
    return ""
