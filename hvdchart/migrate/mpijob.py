"""A Kubeflow MPIJob manifest -> values of this chart.

The fields are those of MPI Operator's types: kubeflow.org/v1 and v2beta1 (mpi-operator 0.6).
"""

from __future__ import annotations

from hvdchart.migrate.command_line import CommandLine
from hvdchart.migrate.ledger import Reading
from hvdchart.migrate.parts import (
    Environment,
    Volumes,
    keep_command,
    keep_exports,
    keep_image,
    keep_resources,
)
from hvdchart.migrate.pod_spec import keep_annotations, keep_pod, keep_security
from hvdchart.spec.patterns import RELEASE_NAME
from hvdchart.spec.validate import Path
from hvdchart.spec.yaml_tree import Plain

API_VERSIONS = ("kubeflow.org/v1", "kubeflow.org/v2beta1")
REPLICAS: Path = ("spec", "mpiReplicaSpecs")
LAUNCHER: Path = (*REPLICAS, "Launcher")
WORKER: Path = (*REPLICAS, "Worker")
KUEUE = "kueue.x-k8s.io/queue-name"
# The operator cleans up when a job ends, well or not.
_CLEANUP = {"All": "Always", "Running": "Always", "None": "Never"}


def migrate_mpijob(reading: Reading) -> tuple[str, str]:
    """Fill in the values and lines of an MPIJob; its name and namespace."""
    names = _names(reading)
    worker, launcher = _container(reading, WORKER), _container(reading, LAUNCHER)
    _images(reading, worker, launcher)
    line = _command(reading, launcher)
    _environments(reading, worker, launcher, line)
    _hosts(reading, worker, line)
    _run_policy(reading)
    keep_pod(reading, (*WORKER, "template", "spec"), "worker")
    keep_pod(reading, (*LAUNCHER, "template", "spec"), "master")
    for owner, group in ((WORKER, "worker"), (LAUNCHER, "master")):
        keep_annotations(reading, (*owner, "template", "metadata"), group)
    keep_security(reading, (*WORKER, "template", "spec"), worker)
    for owner, container in ((WORKER, worker), (LAUNCHER, launcher)):
        why = "one security context for all pods: the workers'"
        reading.drop((*owner, "template", "spec", "securityContext"), why)
        reading.drop((*container, "securityContext"), why)
    volumes = Volumes(reading)
    for owner, container in ((WORKER, worker), (LAUNCHER, launcher)):
        volumes.gather((*owner, "template", "spec", "volumes"), (*container, "volumeMounts"))
    volumes.put(WORKER)
    _left_out(reading, worker, launcher)
    reading.rest("this chart has no key for it")
    return names


def _names(reading: Reading) -> tuple[str, str]:
    for key in ("apiVersion", "kind"):
        reading.drop((key,), "Helm makes a StatefulSet and a Job instead")
    name = reading.text_at("metadata", "name") or reading.text_at("metadata", "generateName")
    namespace = reading.text_at("metadata", "namespace")
    release = name.rstrip("-.").replace(".", "-")[: RELEASE_NAME.longest].rstrip("-")
    for key in ("name", "generateName"):
        if reading.has(("metadata", key)):
            reading.change(("metadata", key), ("helm install NAME",), "the release's name")
    if reading.has(("metadata", "namespace")):
        reading.change(("metadata", "namespace"), ("helm --namespace",), "said to Helm")
    if release != name:
        reading.check(f"the release is called {release}: {name} is no name for one")
    reading.keep(("metadata", "labels", KUEUE), ("queueName",), "Kueue's LocalQueue")
    for key in ("labels", "annotations"):
        reading.drop(("metadata", key), "of the MPIJob object, which is no more")
    reading.drop(("metadata",), "Helm's to say")
    reading.drop(("status",), "the operator's, not yours to say")
    return release, namespace


def _container(reading: Reading, owner: Path) -> Path:
    """The path of the container that counts: mainContainer, else the first."""
    containers = (*owner, "template", "spec", "containers")
    main = reading.text_at("spec", "mainContainer")
    found = reading.list_at(*containers)
    for index in range(len(found)):
        if main and reading.text_at(*containers, index, "name") == main:
            return (*containers, index)
    if not found:
        raise reading.refuse(containers, "a container: an MPIJob has launcher and workers")
    reading.map_at(*containers, 0)
    return (*containers, 0)


def _images(reading: Reading, worker: Path, launcher: Path) -> None:
    if not reading.text_at(*worker, "image"):
        raise reading.refuse((*worker, "image"), "the workers' image")
    keep_image(reading, (*worker, "image"), ("image",))
    reading.keep((*worker, "imagePullPolicy"), ("image", "pullPolicy"))
    if reading.text_at(*launcher, "image") in ("", reading.text_at(*worker, "image")):
        reading.drop((*launcher, "image"), "as the workers'")
    else:
        keep_image(reading, (*launcher, "image"), ("master", "image"))
    if reading.find(*launcher, "imagePullPolicy") == reading.find(*worker, "imagePullPolicy"):
        reading.drop((*launcher, "imagePullPolicy"), "as the workers'")
    else:
        reading.keep((*launcher, "imagePullPolicy"), ("master", "image", "pullPolicy"))


def _command(reading: Reading, launcher: Path) -> CommandLine:
    words = [
        reading.text_at(*launcher, key, index)
        for key in ("command", "args")
        for index in range(len(reading.list_at(*launcher, key)))
    ]
    if not words:
        reading.check(
            "the launcher has no command, so its image's own ran: put that into master.args; "
            "this chart runs an allreduce check without"
        )
        return CommandLine("mpirun")
    old = (*launcher, "command" if reading.list_at(*launcher, "command") else "args")
    line = keep_command(reading, old, words)
    if reading.has((*launcher, "args")) and old[-1] == "command":
        reading.change((*launcher, "args"), ("master", "args"), "of one line with command")
    return line


def _environments(reading: Reading, worker: Path, launcher: Path, line: CommandLine) -> None:
    workers, launchers = Environment(), Environment()
    for container, group, into in ((worker, "worker", workers), (launcher, "master", launchers)):
        for index in range(len(reading.list_at(*container, "env"))):
            path = (*container, "env", index)
            entry = reading.map_at(*path)
            if "name" in entry and into.add(entry):
                reading.change(path, (group, "env"), "")
            else:
                reading.drop(path, "said twice: the first is kept")
    keep_exports(line, workers, launchers.entries)
    workers.put(reading, ("worker", "env"), (*worker, "env"))
    launchers.put(reading, ("master", "env"), (*launcher, "env"))


def _hosts(reading: Reading, worker: Path, line: CommandLine) -> None:
    number = reading.number_at(*WORKER, "replicas")
    number = 1 if number is None else number
    if reading.is_true("spec", "runLauncherAsWorker"):
        number += 1
        reading.change(("spec", "runLauncherAsWorker"), ("worker", "number"), "one worker more")
    else:
        reading.drop(("spec", "runLauncherAsWorker"), "false: the master runs no rank here either")
    reading.put(("worker", "number"), number, (*WORKER, "replicas"))
    if reading.has((*WORKER, "replicas")):
        reading.keep((*WORKER, "replicas"), ("worker", "number"), "", number)
    reading.drop((*LAUNCHER, "replicas"), "there is one master")
    devices = keep_resources(reading, (*worker, "resources"))
    slots = reading.number_at("spec", "slotsPerWorker")
    if devices is not None and devices != (slots or 1):
        reading.keep(("spec", "slotsPerWorker"), ("worker", "slots"), "one rank a GPU", devices)
        reading.check(f"worker.slots is {devices}, as many as GPUs; the MPIJob had {slots or 1}")
    else:
        reading.keep(("spec", "slotsPerWorker"), ("worker", "slots"), "", slots)
    each = devices or slots or 1
    reading.put(("worker", "slots"), each, ("spec",))
    if line.ranks is not None and line.ranks != number * each:
        reading.check(
            f"the old line ran {line.ranks} ranks; now {number} workers x {each} slots make "
            f"{number * each}"
        )


def _run_policy(reading: Reading) -> None:
    for policy in (("spec", "runPolicy"), ("spec",)):
        for key in ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
            path = (*policy, key)
            reading.keep(path, ("master", key), "", reading.number_at(*path))
        reading.keep(
            (*policy, "suspend"), ("master", "suspend"), "", reading.is_true(*policy, "suspend")
        )
        path = (*policy, "cleanPodPolicy")
        if reading.has(path):
            word = reading.text_at(*path)
            if word not in _CLEANUP:
                raise reading.refuse(path, f"one of {', '.join(_CLEANUP)}")
            reading.keep(path, ("cleanup",), "what the operator's policy does", _CLEANUP[word])
    if "ttlSecondsAfterFinished" in reading.values.get("master", {}) and (
        reading.values.get("cleanup") != "Always"
    ):
        reading.put(("cleanup",), "Always", ("spec",))
        reading.check("cleanup is Always: ttlSecondsAfterFinished takes the workers' owner away")
    if reading.has(("spec", "runPolicy", "schedulingPolicy")):
        scheduling: Path = ("spec", "runPolicy", "schedulingPolicy")
        queue = reading.text_at(*scheduling, "queue")
        reading.keep((*scheduling, "priorityClass"), ("priorityClassName",))
        reading.drop(scheduling, "which scheduler it was for is not said: gang says it here")
        reading.check(
            "runPolicy.schedulingPolicy asked for gang scheduling: set gang to Volcano or "
            f"SchedulerPlugins{f', and with Volcano queueName to {queue}' if queue else ''}"
        )


def _left_out(reading: Reading, worker: Path, launcher: Path) -> None:
    for owner, container in ((WORKER, worker), (LAUNCHER, launcher)):
        reading.drop((*owner, "restartPolicy"), "master.backoffLimit counts the retries")
        _other_containers(reading, (*owner, "template", "spec"), container)
        reading.drop((*container, "name"), "the chart's container is called worker or master")
        reading.drop((*container, "ports"), "the chart opens ssh.port")
        if reading.has((*container, "envFrom")):
            reading.drop((*container, "envFrom"), "not taken over: env with valueFrom can say it")
            reading.check("envFrom is lost: name each variable in worker.env with valueFrom")
        if reading.has((*container, "workingDir")):
            place = reading.text_at(*container, "workingDir")
            reading.drop((*container, "workingDir"), "commands start in the image's own directory")
            reading.check(f"workingDir was {place}: make paths in master.args absolute")
    for key in ("command", "args"):
        reading.drop((*worker, key), "the chart starts the workers' SSH server itself")
    reading.keep((*launcher, "resources"), ("master", "resources"))
    for key, why in (
        ("sshAuthMountPath", "the chart keeps its keys at a place of its own"),
        ("launcherCreationPolicy", "the master starts at once and waits for the workers itself"),
        ("mainContainer", "that container is what was taken over"),
    ):
        reading.drop(("spec", key), why)
    _implementation(reading)


def _implementation(reading: Reading) -> None:
    found: Plain = reading.text_at("spec", "mpiImplementation")
    if found not in ("", "OpenMPI"):
        reading.check(f"mpiImplementation {found}: see launch.mode and the image's own mpirun")
    reading.drop(("spec", "mpiImplementation"), "the image's mpirun decides")


def _other_containers(reading: Reading, pod: Path, container: Path) -> None:
    for key in ("initContainers", "containers"):
        for index in range(len(reading.list_at(*pod, key))):
            path = (*pod, key, index)
            if path != container:
                name = reading.text_at(*path, "name") or f"{key}[{index}]"
                reading.drop(path, "this chart's pods have one container")
                instead = "in the image"
                if key == "initContainers" and reading.takes(("staging", "command")):
                    instead = "in staging, if it fetches data, or in the image"
                reading.check(f"container {name} of {key} is lost: do its work {instead}")
