"""Records which nodes have the data that the workers' `staging` fetched.

One ConfigMap for each directory and what is fetched into it: the releases of a namespace share it,
and it outlives them. Its keys are names of nodes, to which the chart then sends workers
(templates/_staging.tpl). A node that is gone, or has lost the data, does no harm: each worker's
init container checks the data, and fetches what is missing.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Mapping

from kube import Api, ApiError
from settings import Host, Pod, Run, log

LABELS = {"horovod/record": "staged"}
# Names of nodes in a message, at most.
MOST_NAMES = 8


def record_nodes(run: Run, api: Api | None, pods: Mapping[Host, Pod]) -> None:
    """Record the nodes of workers that answer: their init containers have ended by then.

    A failure is logged, and not waited for: the training is about to start.
    """
    found: dict[str, set[str]] = {}
    for host, pod in pods.items():
        name = run.staged.get(host.stateful_set)
        if name and pod.node:
            found.setdefault(name, set()).add(pod.node)
    for name, nodes in found.items():
        try:
            if api:
                _add(api, name, nodes)
        except ApiError as problem:
            log(f"cannot record which nodes have the data, for later runs: {problem}")


def _add(api: Api, name: str, nodes: set[str]) -> None:
    try:
        known = api.get(f"core/configmaps/{name}", retry_seconds=0.0).get("data") or {}
    except ApiError as problem:
        if problem.status != 404:
            raise
        known = {}
        metadata = {"name": name, "namespace": api.namespace, "labels": LABELS}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        api.apply(f"core/configmaps/{name}", body, retry_seconds=0.0)
    new = sorted(nodes - known.keys())
    if new:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        api.merge_patch(
            f"core/configmaps/{name}", {"data": dict.fromkeys(new, now)}, retry_seconds=0.0
        )
        before = f" beside {len(known)} that had them" if known else ""
        log(f"{_format(new)} now have the data of staging.path{before} (ConfigMap {name})")
    else:
        log(f"all workers are on nodes that had the data of staging.path: {_format(sorted(nodes))}")


def _format(nodes: list[str]) -> str:
    shown = ", ".join(nodes[:MOST_NAMES])
    return f"nodes {shown}" + (f" and {len(nodes) - MOST_NAMES} more" if nodes[MOST_NAMES:] else "")
