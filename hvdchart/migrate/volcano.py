"""Converts a Volcano Job whose tasks are a launcher and its workers (Volcano's plugin `mpi`)."""

from __future__ import annotations

from collections.abc import Mapping

from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.mpijob import keep_cleanup_for_ttl
from hvdchart.migrate.pods import (
    carry_over_names,
    carry_over_roles,
    carry_over_workers,
    check_keys,
    find_role,
)
from hvdchart.spec.paths import KeyPath

API_VERSION = "batch.volcano.sh/v1alpha1"
_TASK = ("name", "replicas", "minAvailable", "template", "policies", "topologyPolicy", "maxRetry",
         "dependsOn", "partitionPolicy")  # fmt: skip
_KEYS: Mapping[KeyPath, tuple[str, ...]] = {
    (): ("apiVersion", "kind", "metadata", "spec", "status"),
    ("spec",): (
        "schedulerName", "minAvailable", "volumes", "tasks", "policies", "plugins",
        "runningEstimate", "queue", "maxRetry", "ttlSecondsAfterFinished", "priorityClassName",
        "minSuccess", "networkTopology"),
}  # fmt: skip
_LAUNCHER_NAMES = ("master", "launcher", "mpimaster")


def migrate_volcano(ledger: Ledger) -> tuple[str, str]:
    """Fill in the values and entries of a Volcano Job; returns its name and namespace."""
    tasks = ledger.items_at("spec", "tasks")
    check_keys(ledger, {**_KEYS, **dict.fromkeys(tasks, _TASK)})
    launcher_task, worker_task = _find_tasks(ledger, tasks)
    names = carry_over_names(ledger, "Volcano Job")
    launcher, worker = find_role(ledger, launcher_task), find_role(ledger, worker_task)
    line = carry_over_roles(ledger, launcher, worker)
    if line.mode == "custom":
        ledger.add_check(
            "the master's command reads Volcano's files below /etc/volcano or has a step of its "
            "own: put the training command alone into master.args and remove launch.mode"
        )
    carry_over_workers(ledger, worker, line, ())
    _carry_over_scheduling(ledger)
    ledger.close_manifest()
    return names


def _find_tasks(ledger: Ledger, tasks: list[KeyPath]) -> tuple[KeyPath, KeyPath]:
    """The paths of the launcher's task and of the workers'."""
    names = {ledger.text_at(*task, "name"): task for task in tasks}
    master = ledger.text_at("spec", "plugins", "mpi", "master")
    wanted = [name for name in names if name == master or name.lower() in _LAUNCHER_NAMES]
    if len(tasks) != 2 or len(names) != 2 or len(wanted) != 1:
        problem = f"the tasks are {', '.join(names) or 'missing'}"
        expected = "two tasks: one called master, mpimaster or launcher, and its workers"
        raise ledger.error(("spec", "tasks"), problem, expected)
    if (ledger.integer_at(*names[wanted[0]], "replicas") or 1) != 1:
        raise ledger.type_error((*names[wanted[0]], "replicas"), "one launcher")
    (workers,) = set(names) - set(wanted)
    return names[wanted[0]], names[workers]


def _carry_over_scheduling(ledger: Ledger) -> None:
    scheduler = ledger.text_at("spec", "schedulerName")
    if scheduler in ("", "volcano"):
        ledger.put(("gang",), "Volcano", ("spec",))
        ledger.drop(("spec", "schedulerName"), "gang Volcano names its scheduler")
    else:
        ledger.carry_over(("spec", "schedulerName"), ("schedulerName",))
    ledger.carry_over(("spec", "queue"), ("queueName",), "Volcano's queue")
    ledger.carry_over(("spec", "priorityClassName"), ("priorityClassName",))
    retries, ttl = ("spec", "maxRetry"), ("spec", "ttlSecondsAfterFinished")
    ledger.carry_over(retries, ("master", "backoffLimit"), "", ledger.integer_at(*retries))
    ledger.carry_over(ttl, ("master", ttl[1]), "", ledger.integer_at(*ttl))
    keep_cleanup_for_ttl(ledger)
    ledger.drop(("spec", "plugins"), "the chart sets up SSH, the Service and the host file")
    for key in ("minAvailable", "minSuccess"):
        ledger.drop(("spec", key), "the gang is the master and all workers")
    for key in ("policies", "runningEstimate", "networkTopology"):
        ledger.drop(("spec", key), "the master retries, and ends the run")
    if ledger.value_at("spec", "volumes"):
        ledger.drop(("spec", "volumes"), "volumes of Volcano's own: the chart has volumes")
        ledger.add_check("spec.volumes is dropped: mount its claims with volumes and volumeMounts")
    for task in ledger.items_at("spec", "tasks"):
        ledger.drop((*task, "name"), "the chart names its pods worker and master")
        for key in ("minAvailable", "topologyPolicy", "partitionPolicy"):
            ledger.drop((*task, key), "the gang is the master and all workers")
        for key in ("policies", "maxRetry", "dependsOn"):
            ledger.drop((*task, key), "the master waits for its hosts, retries, and ends the run")
