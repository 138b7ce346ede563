"""Why a worker's pod does not run, and whether another attempt can help.

The known reasons are in pod-problems.json, which the hvdchart library reads, too. Its keys are a
container's waiting reason (`container`), a part of the scheduler's message (`scheduling`), a part
of the API server's message about a pod that it refuses (`refusal`), and the reason of an event
about a pod (`event`). `hopeless` means that neither waiting nor another attempt can help.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Dict, NamedTuple

Pod = Dict[str, Any]
TABLE = Path(__file__).with_name("pod-problems.json")
# Waiting reasons of a container that is starting as it should.
STARTING = (None, "ContainerCreating", "PodInitializing")


class Diagnosis(NamedTuple):
    """Why a host is missing, whether that is hopeless, and what a person can do about it.

    `queued`: the pod waits to be admitted by a queue such as Kueue, which may take long.
    """

    reason: str
    hopeless: bool = False
    remedy: str = ""
    queued: bool = False


@functools.lru_cache(maxsize=None)
def known_problems() -> dict[str, dict[str, Any]]:
    """Read the table: section -> sign -> hopeless and remedy."""
    table: dict[str, dict[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def diagnose(pod: Pod) -> Diagnosis:
    """Explain a container's state, else why no node takes the pod, else give its phase."""
    status = pod.get("status", {})
    for container in [
        *status.get("initContainerStatuses", []),
        *status.get("containerStatuses", []),
    ]:
        problem = _diagnose_container(container)
        if problem:
            return problem
    for condition in status.get("conditions", []):
        if condition["status"] == "False" and condition.get("reason") == "SchedulingGated":
            spec = pod.get("spec", {})
            gates = ", ".join(gate["name"] for gate in spec.get("schedulingGates", []))
            return Diagnosis(f"in a queue (scheduling gate {gates})", queued=True)
        if condition["status"] == "False" and condition.get("reason") == "Unschedulable":
            message = str(condition.get("message", ""))
            return _look_up("scheduling", message, f"Unschedulable: {message}")
    return Diagnosis(f"phase {status.get('phase', 'unknown')}")


def diagnose_refusal(message: str) -> Diagnosis:
    """Explain why there is no pod; `message` is the API server's, empty when it gave none."""
    reason = f"the pod does not exist: {message}" if message else "the pod does not exist"
    return _look_up("refusal", message, reason)


def _diagnose_container(container: dict[str, Any]) -> Diagnosis | None:
    state = container.get("state", {})
    ended = container.get("lastState", {}).get("terminated") or state.get("terminated") or {}
    if ended.get("exitCode"):
        detail = (ended.get("message") or ended.get("reason", "")).strip()
        return Diagnosis(f"container {container['name']} exited with {ended['exitCode']}: {detail}")
    waiting = state.get("waiting") or {}
    if waiting.get("reason") in STARTING:
        return None
    reason = f"{waiting['reason']}: {waiting.get('message', '')} (image {container['image']})"
    return _look_up("container", waiting["reason"], reason)


def _look_up(section: str, text: str, reason: str) -> Diagnosis:
    """The diagnosis by the first sign of the table that is in `text`."""
    for sign, known in known_problems()[section].items():
        if sign in text:
            return Diagnosis(reason, known["hopeless"], known["remedy"])
    return Diagnosis(reason)
