"""Objects of a run as the API server has them, cut down to what is read."""

from __future__ import annotations

from typing import Any

from tests.support.runs import describe_run

JOB = "hvd-master-1a2b3c4d"
LABELS = {"app.kubernetes.io/name": "horovod", "app.kubernetes.io/instance": "hvd"}
RUNNING = {"running": {"startedAt": "2026-01-01T10:00:05Z"}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}
STATEFUL_SET: dict[str, Any] = {
    "metadata": {"name": "hvd-worker", "labels": LABELS},
    "spec": {"replicas": 2, "serviceName": "hvd"},
}
# What Helm says of a release of this chart.
OWN_CHART = {"name": "horovod", "own": "true"}
VALUES: dict[str, Any] = {"worker": {"number": 2, "slots": 4}, "master": {"args": ["a"]}}


def job(*conditions: tuple[str, str, str], name: str = JOB, **more: Any) -> dict[str, Any]:
    """A master's Job; conditions are (type, reason, message)."""
    created = more.get("created", "2026-01-01T10:00:00Z")
    return {
        "metadata": {"name": name, "creationTimestamp": created, "labels": LABELS},
        "spec": {
            "backoffLimit": 3,
            "suspend": more.get("suspend", False),
            "template": {"spec": {"containers": [{"name": "master", "env": master_env(more)}]}},
        },
        "status": {
            "failed": more.get("failed", 0),
            "conditions": [
                {"type": kind, "status": "True", "reason": reason, "message": message}
                for kind, reason, message in conditions
            ],
        },
    }


def master_env(more: dict[str, Any]) -> list[dict[str, str]]:
    """The master's variables: one group, or two, the second with two ranks on each worker."""
    first = {"number": 2, "maximum": 4, "minimum": more.get("minimum", 2), "slots": 1}
    groups = [
        {"stateful_set": "hvd-worker", "revision": "", **first},
        {"stateful_set": "hvd-worker-gpu", "number": 1, "maximum": 1, "slots": 2, "revision": ""},
    ]
    run = describe_run(
        groups=groups[: more.get("groups", 1)],
        mode=more.get("mode", "mpirun"),
        options=more.get("options", []),
        args=["python", "$$HOME/train.py"],
        fail_on_nan=True,
    )
    return [{"name": "HVD_RUN", "value": run}]


def pod(name: str, component: str, state: dict[str, Any] | None = None, **more: Any) -> Any:
    """A pod; `state` is its container's."""
    labels = {**LABELS, "app.kubernetes.io/component": component}
    if component == "master":
        labels["batch.kubernetes.io/job-name"] = more.get("job", JOB)
    conditions = more.get("conditions", [])
    if more.get("ready"):
        conditions = [{"type": "Ready", "status": "True"}]
    owner = more.get("job", JOB) if component == "master" else "hvd-worker"
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": labels,
            "ownerReferences": [{"kind": "X", "name": owner}],
        },
        "spec": {"nodeName": more.get("node", "n1")},
        "status": {
            "phase": more.get("phase", "Running" if state and "running" in state else "Pending"),
            "conditions": conditions,
            **(
                {"reason": more["reason"], "message": "node was low on memory"}
                if "reason" in more
                else {}
            ),
            "containerStatuses": [
                {
                    "name": component,
                    "image": "team/train:1",
                    "state": state,
                    "lastState": more.get("last", {}),
                    "restartCount": more.get("restarts", 0),
                }
            ]
            if state
            else [],
        },
    }


def event(about: str, kind: str, reason: str, message: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": more.get("name", f"{about}.{reason}"),
            "creationTimestamp": "2026-01-01T10:00:00Z",
        },
        "involvedObject": {"kind": kind, "name": about, "uid": more.get("uid", "")},
        "type": more.get("type", "Warning"),
        "reason": reason,
        "message": message,
        "lastTimestamp": more.get("at", "2026-01-01T10:00:01Z"),
    }


def terminated(
    code: int, message: str = "", reason: str = "Error", at: str = "10:01:00"
) -> dict[str, Any]:
    """The state of a container that has ended."""
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "message": message,
            "finishedAt": f"2026-01-01T{at}Z",
        }
    }


def of_release(name: str, item: dict[str, Any]) -> dict[str, Any]:
    labels = {**item["metadata"]["labels"], "app.kubernetes.io/instance": name}
    return {**item, "metadata": {**item["metadata"], "labels": labels}}


MASTER = pod(f"{JOB}-x", "master", RUNNING, ready=True)
WORKERS = [pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in (0, 1)]
DONE = job(("Complete", "", ""))
FAILED = job(("Failed", "BackoffLimitExceeded", "limit"), failed=4)
ENDED_MASTER = pod(f"{JOB}-x", "master", terminated(0), phase="Succeeded")
FAILED_MASTER = pod(f"{JOB}-x", "master", terminated(1, "boom"), phase="Failed")
