"""Converts a job of one launcher and its workers, each a pod template: MPIJobs and Volcano Jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hvdchart.migrate.containers import carry_over_image, carry_over_resources
from hvdchart.migrate.environment import (
    Environment,
    add_variable_list,
    expand_references,
    exported,
    list_entries,
)
from hvdchart.migrate.kubernetes import did_you_mean, find_problem
from hvdchart.migrate.launch import carry_over_command, check_elastic, check_ranks
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.line import CommandLine
from hvdchart.migrate.pod_spec import carry_over_metadata, carry_over_pod, carry_over_security
from hvdchart.migrate.trees import without_nulls
from hvdchart.migrate.volumes import Volumes
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.volumes import CHARTS_VOLUMES
from hvdchart.spec.yaml_tree import Plain

KUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True)
class Role:
    """The launcher or the workers: the path of what has a `template`, and of its main container."""

    owner: KeyPath
    container: KeyPath

    @property
    def pod(self) -> KeyPath:
        """The path of the pod's spec."""
        return (*self.owner, "template", "spec")


def check_keys(ledger: Ledger, allowed: Mapping[KeyPath, tuple[str, ...]]) -> None:
    """Raise SpecError for a key that a map of the manifest may not have."""
    for path, keys in allowed.items():
        for key in ledger.map_at(*path):
            if key not in keys:
                missing = [other for other in keys if not ledger.has((*path, other))]
                raise ledger.error((*path, key), "no such key", did_you_mean(key, missing))


def find_role(ledger: Ledger, owner: KeyPath, main: str = "") -> Role:
    """The role at a path; its container is the one called `main`, else the first.

    Raises SpecError for a pod template that Kubernetes would refuse.
    """
    template = (*owner, "template")
    wrong = find_problem("PodTemplateSpec", without_nulls(ledger.map_at(*template)))
    containers = ledger.items_at(*template, "spec", "containers")
    if not containers:
        expected = "a container: launcher and workers have one"
        raise ledger.type_error((*template, "spec", "containers"), expected)
    if wrong is not None:
        raise ledger.error((*template, *wrong.path), wrong.problem, wrong.expected)
    named = [path for path in containers if main and ledger.text_at(*path, "name") == main]
    return Role(owner, (named or containers)[0])


def carry_over_names(ledger: Ledger, kind: str) -> tuple[str, str]:
    """The metadata of the manifest; returns the names of the job and of the namespace."""
    for key in ("apiVersion", "kind"):
        ledger.drop((key,), "the chart makes a StatefulSet and a Job instead")
    name = ledger.text_at("metadata", "name") or ledger.text_at("metadata", "generateName")
    namespace = ledger.text_at("metadata", "namespace")
    for key in ("name", "generateName"):
        if ledger.has(("metadata", key)):
            ledger.change(("metadata", key), ("helm install NAME",), "the name of the release")
    if ledger.has(("metadata", "namespace")):
        ledger.change(("metadata", "namespace"), ("helm --namespace",), "an option of Helm")
    ledger.carry_over(("metadata", "labels", KUEUE_LABEL), ("queueName",), "Kueue's LocalQueue")
    for key in ("labels", "annotations"):
        ledger.drop(("metadata", key), f"of the {kind} object, which Helm does not make")
    ledger.drop(("metadata",), "Helm sets the metadata of the objects")
    ledger.drop(("status",), "the operator writes it")
    return name, namespace


def carry_over_roles(
    ledger: Ledger, launcher: Role, worker: Role, *, exports_all: bool = False
) -> CommandLine:
    """Everything in the two pod templates except the workers' resources; returns the launcher's
    line. `exports_all` is true where the MPI gives the launcher's variables to all ranks."""
    _carry_over_images(ledger, worker.container, launcher.container)
    line = _carry_over_command(ledger, worker.container, launcher.container, exports_all)
    carry_over_pod(ledger, worker.pod, "worker")
    carry_over_pod(ledger, launcher.pod, "master")
    carry_over_metadata(ledger, (*worker.owner, "template", "metadata"), "worker")
    carry_over_metadata(ledger, (*launcher.owner, "template", "metadata"), "master")
    carry_over_security(ledger, worker.pod, worker.container)
    for path in (launcher.pod, launcher.container):
        ledger.drop((*path, "securityContext"), "the workers' security context is for all pods")
    volumes = Volumes(ledger)
    volumes.add((*worker.pod, "volumes"), (*worker.container, "volumeMounts"))
    volumes.add((*launcher.pod, "volumes"), (*launcher.container, "volumeMounts"))
    volumes.put(worker.owner)
    ledger.carry_over((*launcher.container, "resources"), ("master", "resources"))
    _drop_without_equivalent(ledger, worker, launcher)
    return line


def carry_over_workers(
    ledger: Ledger, worker: Role, line: CommandLine, slots: KeyPath, more: int = 0
) -> None:
    """The number of workers and of their slots; `slots` is the path of the number in the file.

    `more` is the number of workers in addition to the replicas.
    """
    replicas = (*worker.owner, "replicas")
    number = ledger.integer_at(*replicas)
    number = (1 if number is None else number) + more
    ledger.put(("worker", "number"), number, replicas)
    ledger.carry_over(replicas, ("worker", "number"), "", number)
    gpus = carry_over_resources(ledger, (*worker.container, "resources"))
    wanted = ledger.integer_at(*slots) if slots else None
    given = wanted or line.per_host or 1
    if gpus is not None and gpus != given:
        if slots:
            ledger.carry_over(slots, ("worker", "slots"), "one rank for each GPU", gpus)
        ledger.add_check(f"worker.slots is {gpus}, the number of GPUs; the job had {given}")
    elif slots:
        ledger.carry_over(slots, ("worker", "slots"), "", wanted)
    ledger.put(("worker", "slots"), gpus or given, slots or replicas)
    check_ranks(ledger, line, number, gpus or given)
    check_elastic(ledger, line, number, gpus or given, replicas)


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


def _carry_over_command(
    ledger: Ledger, worker: KeyPath, launcher: KeyPath, exports_all: bool
) -> CommandLine:
    command, arguments = (*launcher, "command"), (*launcher, "args")
    items = [*ledger.items_at(*command), *ledger.items_at(*arguments)]
    old = command if ledger.list_at(*command) else arguments
    variables = list_entries(ledger, (*launcher, "env"))
    line = CommandLine("mpirun")
    if items:
        words = [expand_references(ledger, at, ledger.text_at(*at), variables) for at in items]
        line = carry_over_command(ledger, old, words)
        if old == command and ledger.has(arguments):
            ledger.change(arguments, ("master", "args"), "the rest of the command line")
        if not ledger.list_at(*command):
            ledger.add_check(
                "the launcher has arguments and no command, so the image's entry point got them; "
                "here they are the whole command line"
            )
    else:
        ledger.add_check(
            "the launcher has no command, so the image's own ran; this chart runs a check of "
            "allreduce instead. Put the command into master.args"
        )
    line.exports_all = line.exports_all or (exports_all and line.mode == "mpirun")
    workers = Environment(exported(ledger, old, line, variables))
    launchers = Environment()
    add_variable_list(ledger, (*worker, "env"), workers, ("worker", "env"))
    add_variable_list(ledger, (*launcher, "env"), launchers, ("master", "env"))
    workers.put(ledger, ("worker", "env"), (*worker, "env"))
    launchers.put(ledger, ("master", "env"), (*launcher, "env"))
    return line


def _drop_without_equivalent(ledger: Ledger, worker: Role, launcher: Role) -> None:
    for key in ("command", "args"):
        ledger.drop((*worker.container, key), "the chart starts the workers' SSH server")
    ledger.drop((*launcher.owner, "replicas"), "the chart has one master")
    for role, group in ((worker, "worker"), (launcher, "master")):
        container = role.container
        ledger.carry_over((*container, "envFrom"), (group, "envFrom"))
        reason = "master.backoffLimit sets the number of retries"
        ledger.drop((*role.owner, "restartPolicy"), reason)
        _carry_over_other_containers(ledger, role, group)
        ledger.drop((*container, "name"), "the chart names its containers worker and master")
        ledger.drop((*container, "ports"), "the chart opens ssh.port")
        if ledger.has((*container, "workingDir")):
            ledger.carry_over((*container, "workingDir"), (group, "container", "workingDir"))


def _carry_over_other_containers(ledger: Ledger, role: Role, group: str) -> None:
    """Containers before and beside the main one -> the chart's keys for them."""
    moved: dict[str, list[Plain]] = {}
    for key in ("initContainers", "containers"):
        paths = [path for path in ledger.items_at(*role.pod, key) if path != role.container]
        is_beside = key == "containers"
        new = "extraContainers" if is_beside and group == "worker" else "initContainers"
        reason = "unchanged"
        for path in paths:
            _refuse_volumes_of_chart(ledger, path)
            container = without_nulls(ledger.map_at(*path))
            if is_beside and group == "master":
                reason = "with restartPolicy Always: they run until the master ends"
                container = {**container, "restartPolicy": "Always"}
            moved.setdefault(new, []).append(container)
            ledger.change(path, (group, new), reason)
        if paths:
            names = ", ".join(ledger.text_at(*path, "name") for path in paths)
            ledger.add_check(
                f"{names} of {key} are in {group}.{new}, {reason}. Under Pod Security restricted "
                "they need a securityContext of their own"
            )
    for new, containers in moved.items():
        ledger.put((group, new), containers, role.pod)


def _refuse_volumes_of_chart(ledger: Ledger, container: KeyPath) -> None:
    for mount in ledger.items_at(*container, "volumeMounts"):
        if ledger.text_at(*mount, "name") in CHARTS_VOLUMES:
            problem = "the chart has a volume of that name, so this one gets another"
            raise ledger.error(mount, problem, "a volume with another name")
