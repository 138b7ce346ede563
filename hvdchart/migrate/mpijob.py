"""Converts a Kubeflow MPIJob manifest.

The fields are those of MPI Operator's types: kubeflow.org/v1 and v2beta1 (mpi-operator 0.6).
"""

from __future__ import annotations

from hvdchart.migrate.command_line import CommandLine
from hvdchart.migrate.containers import (
    Environment,
    add_exports,
    add_variable_list,
    carry_over_command,
    carry_over_image,
    carry_over_resources,
    check_ranks,
)
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.pod_spec import carry_over_metadata, carry_over_pod, carry_over_security
from hvdchart.migrate.volumes import Volumes
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.patterns import RELEASE_NAME

API_VERSIONS = ("kubeflow.org/v1", "kubeflow.org/v2beta1")
LAUNCHER: KeyPath = ("spec", "mpiReplicaSpecs", "Launcher")
WORKER: KeyPath = ("spec", "mpiReplicaSpecs", "Worker")
LAUNCHER_POD: KeyPath = (*LAUNCHER, "template", "spec")
WORKER_POD: KeyPath = (*WORKER, "template", "spec")
KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
# The operator cleans up when a job ends, whether it succeeded or failed.
_CLEANUP = {"All": "Always", "Running": "Always", "None": "Never"}


def migrate_mpijob(ledger: Ledger) -> tuple[str, str]:
    """Fill in the values and entries of an MPIJob; returns its name and namespace."""
    names = _carry_over_names(ledger)
    worker, launcher = _main_container(ledger, WORKER_POD), _main_container(ledger, LAUNCHER_POD)
    _carry_over_images(ledger, worker, launcher)
    _carry_over_command_and_environment(ledger, worker, launcher)
    _carry_over_run_policy(ledger)
    carry_over_pod(ledger, WORKER_POD, "worker")
    carry_over_pod(ledger, LAUNCHER_POD, "master")
    carry_over_metadata(ledger, (*WORKER, "template", "metadata"), "worker")
    carry_over_metadata(ledger, (*LAUNCHER, "template", "metadata"), "master")
    carry_over_security(ledger, WORKER_POD, worker)
    for path in (LAUNCHER_POD, launcher):
        ledger.drop((*path, "securityContext"), "the workers' security context is for all pods")
    volumes = Volumes(ledger)
    volumes.add((*WORKER_POD, "volumes"), (*worker, "volumeMounts"))
    volumes.add((*LAUNCHER_POD, "volumes"), (*launcher, "volumeMounts"))
    volumes.put(WORKER)
    ledger.carry_over((*launcher, "resources"), ("master", "resources"))
    _drop_without_equivalent(ledger, worker, launcher)
    ledger.drop_rest(lambda _: "the chart has no key for this field of an MPIJob")
    return names


def _carry_over_names(ledger: Ledger) -> tuple[str, str]:
    for key in ("apiVersion", "kind"):
        ledger.drop((key,), "the chart makes a StatefulSet and a Job instead")
    name = ledger.text_at("metadata", "name") or ledger.text_at("metadata", "generateName")
    namespace = ledger.text_at("metadata", "namespace")
    release = name.rstrip("-.").replace(".", "-")[: RELEASE_NAME.longest].rstrip("-")
    for key in ("name", "generateName"):
        if ledger.has(("metadata", key)):
            ledger.change(("metadata", key), ("helm install NAME",), "the name of the release")
    if ledger.has(("metadata", "namespace")):
        ledger.change(("metadata", "namespace"), ("helm --namespace",), "an option of Helm")
    if release != name:
        ledger.add_check(f"the release is called {release}: {name} is not a valid release name")
    ledger.carry_over(("metadata", "labels", KUEUE_LABEL), ("queueName",), "Kueue's LocalQueue")
    for key in ("labels", "annotations"):
        ledger.drop(("metadata", key), "of the MPIJob object, which Helm does not make")
    ledger.drop(("metadata",), "Helm sets the metadata of the objects")
    ledger.drop(("status",), "MPI Operator writes it")
    return release, namespace


def _main_container(ledger: Ledger, pod: KeyPath) -> KeyPath:
    """The path of the container that spec.mainContainer names, else of the first."""
    containers = ledger.items_at(*pod, "containers")
    if not containers:
        expected = "a container: an MPIJob has launcher and workers"
        raise ledger.type_error((*pod, "containers"), expected)
    main = ledger.text_at("spec", "mainContainer")
    for path in containers:
        if main and ledger.text_at(*path, "name") == main:
            return path
    ledger.map_at(*containers[0])
    return containers[0]


def _carry_over_images(ledger: Ledger, worker: KeyPath, launcher: KeyPath) -> None:
    if not ledger.text_at(*worker, "image"):
        raise ledger.type_error((*worker, "image"), "the workers' image")
    carry_over_image(ledger, (*worker, "image"), ("image",))
    ledger.carry_over((*worker, "imagePullPolicy"), ("image", "pullPolicy"))
    same = "the master uses the workers'"
    if ledger.text_at(*launcher, "image") in ("", ledger.text_at(*worker, "image")):
        ledger.drop((*launcher, "image"), same)
    else:
        carry_over_image(ledger, (*launcher, "image"), ("master", "image"))
    policy = (*launcher, "imagePullPolicy")
    if ledger.value_at(*policy) == ledger.value_at(*worker, "imagePullPolicy"):
        ledger.drop(policy, same)
    else:
        ledger.carry_over(policy, ("master", "image", "pullPolicy"))


def _carry_over_command_and_environment(ledger: Ledger, worker: KeyPath, launcher: KeyPath) -> None:
    command, arguments = (*launcher, "command"), (*launcher, "args")
    items = [*ledger.items_at(*command), *ledger.items_at(*arguments)]
    old = command if ledger.list_at(*command) else arguments
    line = CommandLine("mpirun")
    if items:
        line = carry_over_command(ledger, old, [ledger.text_at(*item) for item in items])
        if old == command and ledger.has(arguments):
            ledger.change(arguments, ("master", "args"), "the rest of the command line")
    else:
        ledger.add_check(
            "the launcher has no command, so the image's own ran; this chart runs a check of "
            "allreduce instead. Put the command into master.args"
        )
    workers, launchers = Environment(), Environment()
    add_variable_list(ledger, (*worker, "env"), workers, ("worker", "env"))
    add_variable_list(ledger, (*launcher, "env"), launchers, ("master", "env"))
    add_exports(ledger, old, line, workers, launchers.entries)
    workers.put(ledger, ("worker", "env"), (*worker, "env"))
    launchers.put(ledger, ("master", "env"), (*launcher, "env"))
    _carry_over_workers(ledger, worker, line)


def _carry_over_workers(ledger: Ledger, worker: KeyPath, line: CommandLine) -> None:
    replicas = (*WORKER, "replicas")
    number = ledger.integer_at(*replicas)
    number = 1 if number is None else number
    if ledger.is_true("spec", "runLauncherAsWorker"):
        number += 1
        reason = "one more worker, because the master runs no ranks"
        ledger.change(("spec", "runLauncherAsWorker"), ("worker", "number"), reason)
    else:
        ledger.drop(("spec", "runLauncherAsWorker"), "false: the master runs no ranks")
    ledger.put(("worker", "number"), number, replicas)
    ledger.carry_over(replicas, ("worker", "number"), "", number)
    ledger.drop((*LAUNCHER, "replicas"), "the chart has one master")
    gpus = carry_over_resources(ledger, (*worker, "resources"))
    path = ("spec", "slotsPerWorker")
    slots = ledger.integer_at(*path) or 1
    if gpus is not None and gpus != slots:
        ledger.carry_over(path, ("worker", "slots"), "one rank for each GPU", gpus)
        ledger.add_check(f"worker.slots is {gpus}, the number of GPUs; the MPIJob had {slots}")
    else:
        ledger.carry_over(path, ("worker", "slots"), "", ledger.integer_at(*path))
    ledger.put(("worker", "slots"), gpus or slots, path)
    check_ranks(ledger, line, number, gpus or slots)


def _carry_over_run_policy(ledger: Ledger) -> None:
    for policy in (("spec", "runPolicy"), ("spec",)):
        for key in ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
            path = (*policy, key)
            ledger.carry_over(path, ("master", key), "", ledger.integer_at(*path))
        path = (*policy, "suspend")
        ledger.carry_over(path, ("master", "suspend"), "", ledger.is_true(*path))
        path = (*policy, "cleanPodPolicy")
        if ledger.has(path):
            word = ledger.text_at(*path)
            if word not in _CLEANUP:
                raise ledger.type_error(path, f"one of {', '.join(_CLEANUP)}")
            ledger.carry_over(path, ("cleanup",), "the same meaning", _CLEANUP[word])
    if "ttlSecondsAfterFinished" in ledger.values.get("master", {}) and (
        ledger.values.get("cleanup") != "Always"
    ):
        ledger.put(("cleanup",), "Always", ("spec",))
        ledger.add_check(
            "cleanup is Always, because ttlSecondsAfterFinished deletes the Job and would leave "
            "the workers of a failed run"
        )
    scheduling: KeyPath = ("spec", "runPolicy", "schedulingPolicy")
    if ledger.has(scheduling):
        queue = ledger.text_at(*scheduling, "queue")
        ledger.carry_over((*scheduling, "priorityClass"), ("priorityClassName",))
        ledger.drop(scheduling, "the MPIJob does not name the gang scheduler; set gang")
        ledger.add_check(
            "runPolicy.schedulingPolicy asked for gang scheduling: set gang to Volcano or "
            f"SchedulerPlugins{f', and with Volcano queueName to {queue}' if queue else ''}"
        )


def _drop_without_equivalent(ledger: Ledger, worker: KeyPath, launcher: KeyPath) -> None:
    for key in ("command", "args"):
        ledger.drop((*worker, key), "the chart starts the workers' SSH server")
    for owner, container in ((WORKER, worker), (LAUNCHER, launcher)):
        ledger.drop((*owner, "restartPolicy"), "master.backoffLimit sets the number of retries")
        _drop_other_containers(ledger, (*owner, "template", "spec"), container)
        ledger.drop((*container, "name"), "the chart names its containers worker and master")
        ledger.drop((*container, "ports"), "the chart opens ssh.port")
        if ledger.has((*container, "envFrom")):
            ledger.drop((*container, "envFrom"), "the chart takes variables in env only")
            ledger.add_check("envFrom is dropped: list each variable in worker.env with valueFrom")
        if ledger.has((*container, "workingDir")):
            directory = ledger.text_at(*container, "workingDir")
            ledger.drop((*container, "workingDir"), "commands start in the image's directory")
            ledger.add_check(f"workingDir was {directory}: make paths in master.args absolute")
    for key, reason in (
        ("sshAuthMountPath", "the chart has its own mount path for the SSH keys"),
        ("launcherCreationPolicy", "the master starts at once and waits for the workers"),
        ("mainContainer", "the values are those of this container"),
        ("mpiImplementation", "the chart detects the image's MPI"),
    ):
        ledger.drop(("spec", key), reason)
    implementation = ledger.text_at("spec", "mpiImplementation")
    if implementation not in ("", "OpenMPI"):
        ledger.add_check(f"mpiImplementation was {implementation}: check that the image has it")


def _drop_other_containers(ledger: Ledger, pod: KeyPath, main: KeyPath) -> None:
    for key in ("initContainers", "containers"):
        for index, path in enumerate(ledger.items_at(*pod, key)):
            if path == main:
                continue
            name = ledger.text_at(*path, "name") or f"{key}[{index}]"
            ledger.drop(path, "the chart has no key for further containers")
            remedy = "do its work in the image"
            if key == "initContainers":
                remedy = "fetch data with staging.command, or do its work in the image"
            ledger.add_check(f"container {name} of {key} is dropped: {remedy}")
