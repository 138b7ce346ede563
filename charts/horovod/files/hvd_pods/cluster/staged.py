"""The node lists: which nodes have the data that the init container `staging` has fetched.

Each combination of a directory and the data fetched into it has a node list, a ConfigMap. The
releases of a namespace share it, and it remains when they are uninstalled. Its keys are the names
of the nodes, which the chart prefers for later workers (templates/facts/_pods.tpl). An entry for a
removed node, or for a node that has lost the data, does no harm: each worker's init container
checks the data and fetches missing parts.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Mapping

from hvd_pods.cluster.kube import Api, ApiError
from hvd_pods.pod.reporting import log
from hvd_pods.shared import contract
from hvd_pods.shared.objects import format_time
from hvd_pods.shared.run import Pod, Run, Worker

STAGED_LABELS = {contract.NODE_LIST_LABEL: "staged"}
# A message names at most this many nodes.
MAX_NAMED_NODES = 8


def add_nodes(run: Run, api: Api | None, pods: Mapping[Worker, Pod]) -> None:
    """List the nodes of workers that respond: their init containers have ended by then.

    Without access to the API (None), no nodes are listed. A failure is logged and not retried: the
    training is about to start.
    """
    node_lists: dict[str, set[str]] = {}
    for worker, pod in pods.items():
        name = run.staged.get(worker.stateful_set)
        if name and pod.node:
            node_lists.setdefault(name, set()).add(pod.node)
    for name, nodes in node_lists.items():
        try:
            if api:
                _add(api, name, nodes)
        except ApiError as problem:
            log(f"cannot list for later runs which nodes have the data: {problem}")


def _add(api: Api, name: str, nodes: set[str]) -> None:
    """Add nodes to a list; create the list if it does not exist. Raises ApiError."""
    try:
        listed = api.get(f"core/configmaps/{name}", retry_seconds=0.0).get("data") or {}
    except ApiError as problem:
        if problem.status != HTTPStatus.NOT_FOUND:
            raise
        listed = {}
        metadata = {"name": name, "namespace": api.namespace, "labels": STAGED_LABELS}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        api.apply(f"core/configmaps/{name}", body, retry_seconds=0.0)
    new = sorted(nodes - listed.keys())
    if new:
        data = dict.fromkeys(new, format_time(time.time()))
        api.merge_patch(f"core/configmaps/{name}", {"data": data}, retry_seconds=0.0)
        shown = ", ".join(new[:MAX_NAMED_NODES])
        if len(new) > MAX_NAMED_NODES:
            shown += f" and {len(new) - MAX_NAMED_NODES} more"
        log(f"added to ConfigMap {name}: the data of `staging.path` are on nodes {shown}")
    log(f"{len(nodes) - len(new)} of {len(nodes)} nodes had the data of `staging.path` before")
