"""Converts a Kubeflow MPIJob manifest.

The fields are those of MPI Operator's types: kubeflow.org/v1 and v2beta1 (mpi-operator 0.6).
"""

from __future__ import annotations

from collections.abc import Mapping

from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.pods import (
    carry_over_names,
    carry_over_roles,
    carry_over_workers,
    check_keys,
    find_role,
)
from hvdchart.spec.paths import KeyPath

API_VERSIONS = ("kubeflow.org/v1", "kubeflow.org/v1alpha2", "kubeflow.org/v2beta1")
REPLICAS: KeyPath = ("spec", "mpiReplicaSpecs")
# The operator cleans up when a job ends, whether it succeeded or failed.
CLEANUP = {"All": "Always", "Running": "Always", "None": "Never"}
_POLICY = ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit",
           "suspend", "schedulingPolicy", "managedBy")  # fmt: skip
_KEYS: Mapping[KeyPath, tuple[str, ...]] = {
    (): ("apiVersion", "kind", "metadata", "spec", "status"),
    ("spec",): (
        "slotsPerWorker", "runLauncherAsWorker", "runPolicy", "mpiReplicaSpecs", "mainContainer",
        "sshAuthMountPath", "launcherCreationPolicy", "mpiImplementation", "mpiDistribution",
        *_POLICY),
    ("spec", "runPolicy"): _POLICY,
    ("spec", "runPolicy", "schedulingPolicy"): (
        "minAvailable", "queue", "minResources", "priorityClass", "scheduleTimeoutSeconds"),
    REPLICAS: ("Launcher", "Worker"),
    (*REPLICAS, "Launcher"): ("replicas", "template", "restartPolicy"),
    (*REPLICAS, "Worker"): ("replicas", "template", "restartPolicy"),
}  # fmt: skip


def migrate_mpijob(ledger: Ledger) -> tuple[str, str]:
    """Fill in the values and entries of an MPIJob; returns its name and namespace."""
    check_keys(ledger, _KEYS)
    names = carry_over_names(ledger, "MPIJob")
    main = ledger.text_at("spec", "mainContainer")
    worker = find_role(ledger, (*REPLICAS, "Worker"), main)
    launcher = find_role(ledger, (*REPLICAS, "Launcher"), main)
    implementation = ledger.text_at("spec", "mpiImplementation") or ledger.text_at(
        "spec", "mpiDistribution"
    )
    exports_all = implementation in ("Intel", "IntelMPI", "MPICH")
    line = carry_over_roles(ledger, launcher, worker, exports_all=exports_all)
    more = 0
    as_worker = ("spec", "runLauncherAsWorker")
    if ledger.is_true(*as_worker):
        more = 1
        reason = "one more worker, because the master runs no ranks"
        ledger.change(as_worker, ("worker", "number"), reason)
    else:
        ledger.drop(as_worker, "false: the master runs no ranks")
    carry_over_workers(ledger, worker, line, ("spec", "slotsPerWorker"), more)
    _carry_over_run_policy(ledger)
    for key, reason in (
        ("sshAuthMountPath", "the chart has its own mount path for the SSH keys"),
        ("launcherCreationPolicy", "the master starts at once and waits for the workers"),
        ("mainContainer", "the values are those of this container"),
        ("mpiImplementation", "the chart detects the image's MPI"),
        ("mpiDistribution", "the chart detects the image's MPI"),
    ):
        ledger.drop(("spec", key), reason)
    if implementation not in ("", "OpenMPI"):
        ledger.add_check(f"mpiImplementation was {implementation}: check that the image has it")
    ledger.close_manifest()
    return names


def _carry_over_run_policy(ledger: Ledger) -> None:
    for policy in (("spec", "runPolicy"), ("spec",)):
        for key in ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
            path = (*policy, key)
            ledger.carry_over(path, ("master", key), "", ledger.integer_at(*path))
        path = (*policy, "suspend")
        ledger.carry_over(path, ("master", "suspend"), "", ledger.is_true(*path))
        ledger.drop((*policy, "managedBy"), "the chart's objects have no other controller")
        carry_over_cleanup(ledger, (*policy, "cleanPodPolicy"))
    keep_cleanup_for_ttl(ledger)
    scheduling: KeyPath = ("spec", "runPolicy", "schedulingPolicy")
    if ledger.has(scheduling):
        queue = ledger.text_at(*scheduling, "queue")
        ledger.carry_over((*scheduling, "priorityClass"), ("priorityClassName",))
        ledger.drop(scheduling, "the MPIJob does not name the gang scheduler; set gang")
        ledger.add_check(
            "runPolicy.schedulingPolicy asked for gang scheduling: set gang to Volcano or "
            f"SchedulerPlugins{f', and with Volcano queueName to {queue}' if queue else ''}"
        )


def carry_over_cleanup(ledger: Ledger, path: KeyPath) -> None:
    """The operator's cleanPodPolicy -> cleanup."""
    word = ledger.text_at(*path)
    if not word:
        ledger.drop(path, "an empty value sets nothing")
    elif word not in CLEANUP:
        raise ledger.type_error(path, f"one of {', '.join(CLEANUP)}")
    else:
        ledger.carry_over(path, ("cleanup",), "the same meaning", CLEANUP[word])


def keep_cleanup_for_ttl(ledger: Ledger) -> None:
    """Set cleanup to Always, where a time to live would leave the workers of a failed run."""
    if "ttlSecondsAfterFinished" in ledger.values.get("master", {}) and (
        ledger.values.get("cleanup") != "Always"
    ):
        ledger.replace(("cleanup",), "Always")
        ledger.add_check(
            "cleanup is Always, because ttlSecondsAfterFinished deletes the Job and would leave "
            "the workers of a failed run"
        )
