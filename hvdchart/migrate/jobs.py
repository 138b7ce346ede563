"""Convert jobs of Kubeflow: MPIJobs, and PyTorchJobs and TrainJobs, whose pods all train. Pure.

The master starts the ranks of the latter itself: they connect by variables that the chart also
sets. fields.json has the fields that need no code. Sources of the fields: the types of MPI Operator
(kubeflow.org/v1 and v2beta1), Training Operator (kubeflow.org/v1) and Trainer
(trainer.kubeflow.org/v1alpha1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hvd_pods.shared.contract import COMPONENT_LABEL, INSTANCE_LABEL, NAME_LABEL
from hvdchart.migrate.carry_over import (
    OWN_OF_RANKS,
    Variable,
    carry_over_command,
    carry_over_size,
    carry_over_variables,
    list_exports,
    variables_at,
)
from hvdchart.migrate.fields import apply_table
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.line_size import LineSize, NotUnderstoodError, read_count
from hvdchart.migrate.lines import LAUNCHERS, LauncherLine, parse_container, parse_or_keep
from hvdchart.migrate.pods import (
    carry_over_capabilities,
    carry_over_image,
    carry_over_resources,
    carry_over_volumes,
    check_user,
)
from hvdchart.quantity import pluralize
from hvdchart.spec.paths import KeyPath

_MPI_REPLICAS: KeyPath = ("spec", "mpiReplicaSpecs")
_TORCH_REPLICAS: KeyPath = ("spec", "pytorchReplicaSpecs")
_TRAINER: KeyPath = ("spec", "trainer")
_ELASTIC: KeyPath = ("spec", "elasticPolicy")
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_IMAGE_USER = "the image's user, often root"


@dataclass(frozen=True)
class _Role:
    """The launcher or the workers: the path of the object with `template`, and of its container."""

    owner: KeyPath
    container: KeyPath

    @property
    def pod(self) -> KeyPath:
        """The path of the pod's spec."""
        return (*self.owner, "template", "spec")


def migrate_mpijob(ledger: Ledger) -> None:
    main = ledger.text_at("spec", "mainContainer")
    worker = _find_role(ledger, (*_MPI_REPLICAS, "Worker"), main)
    launcher = _find_role(ledger, (*_MPI_REPLICAS, "Launcher"), main)
    named = [ledger.text_at("spec", f"mpi{key}") for key in ("Implementation", "Distribution")]
    implementation = named[0] or named[1]

    def read_line(_: KeyPath, words: Sequence[str]) -> LauncherLine:
        line = parse_or_keep(words) if words else LauncherLine()
        # These pass the launcher's variables to all ranks.
        if line.mode == "mpirun" and implementation in ("Intel", "IntelMPI", "MPICH"):
            line.exports_all = True
        return line

    variables = variables_at(ledger, (*launcher.container, "env"))
    old, line = _carry_over_command(ledger, launcher.container, variables, read_line)
    won = list_exports(ledger, old, line, variables)
    resources = (*worker.container, "resources")
    env = (*worker.container, "env")
    carry_over_variables(ledger, {env: ""}, ("worker", "env"), won, resources)
    carry_over_variables(ledger, {(*launcher.container, "env"): ""}, ("master", "env"), {})
    apply_table(ledger, "command of the workers", worker.container)
    _carry_over_roles(ledger, {"worker": worker, "master": launcher})

    _carry_over_mpi_size(ledger, worker, launcher, old, line)
    if implementation not in ("", "OpenMPI"):
        ledger.add_check(f"mpiImplementation was {implementation}: check that the image has it")
    _finish(ledger)


def _carry_over_mpi_size(
    ledger: Ledger, worker: _Role, launcher: _Role, old: KeyPath, line: LauncherLine
) -> None:
    """Carry over resources and the size of an MPIJob, whose launcher at `old` has this line."""
    replicas = (*worker.owner, "replicas")
    number = ledger.integer_at(*replicas)
    number = 1 if number is None else number
    as_worker = ("spec", "runLauncherAsWorker")
    if ledger.is_true(*as_worker):
        number += 1
        reason = "one more worker, because the master runs no ranks"
        ledger.change(as_worker, ("worker", "number"), reason)
        reason = "for the launcher's ranks, which one more worker runs"
        ledger.drop((*launcher.container, "resources"), reason)
    else:
        ledger.drop(as_worker, "the master runs no ranks")
        ledger.carry_over((*launcher.container, "resources"), ("master", "resources"))
    gpus = carry_over_resources(ledger, (*worker.container, "resources"))
    wanted = ledger.integer_at("spec", "slotsPerWorker")
    per_host = wanted or line.size.per_host or 1
    if gpus not in (None, per_host):
        ledger.add_check(f"worker.slots is {gpus}, the number of GPUs; the job had {per_host}")
    ledger.carry_over(("spec", "slotsPerWorker"), ("worker", "slots"), "", gpus or wanted)
    ledger.carry_over(replicas, ("worker", "number"), "", number)
    carry_over_size(ledger, old, line, number, gpus or per_host, replicas)


def migrate_pytorchjob(ledger: Ledger) -> None:
    owners = [(*_TORCH_REPLICAS, role) for role in ("Worker", "Master")]
    owners = [owner for owner in owners if ledger.has(owner)]
    if not owners:
        raise ledger.type_error(_TORCH_REPLICAS, "a Master, Workers or both")
    role = _find_role(ledger, owners[0], "pytorch")
    number = 0
    for owner in owners:
        replicas = ledger.integer_at(*owner, "replicas")
        number += 1 if replicas is None else replicas
        ledger.change((*owner, "replicas"), ("worker", "number"), "all pods train")
    in_policy = (*_ELASTIC, "nProcPerNode")
    per_node = in_policy if ledger.has(in_policy) else ("spec", "nprocPerNode")
    _carry_over_training(ledger, role.container, "resources", number, owners[0], per_node)
    _carry_over_roles(ledger, {"worker": role})
    workdir = (*role.container, "workingDir")
    ledger.carry_over(workdir, ("master", "container", "workingDir"))
    for owner in owners[1:]:
        apply_table(ledger, "other replicas", owner, "master", role.owner)
    _finish(ledger)


def migrate_trainjob(ledger: Ledger) -> None:
    runtime = ledger.text_at("spec", "runtimeRef", "name") or "without a name"
    image = (*_TRAINER, "image")
    if ledger.text_at(*image):
        carry_over_image(ledger, image, ("image",))
    else:
        ledger.add_check(
            f"the image is that of the runtime {runtime}: set image.repository and image.tag"
        )
    number = ledger.integer_at(*_TRAINER, "numNodes")
    if number is None:
        ledger.add_check(f"numNodes is that of the runtime {runtime}: set worker.number")
    ledger.change((*_TRAINER, "numNodes"), ("worker", "number"))
    per_node = (*_TRAINER, "numProcPerNode")
    line = _carry_over_training(
        ledger, _TRAINER, "resourcesPerNode", number or 1, _TRAINER, per_node
    )
    if line.launcher not in LAUNCHERS and "torch" not in runtime:
        ledger.add_check(
            f"launch.framework is torch: set it, and launch.mode, to what the runtime {runtime} "
            "starts the command with"
        )
    check_user(ledger, _IMAGE_USER)
    ledger.add_check(
        f"the runtime {runtime} has a pod template, which is not in the file: set what the ranks "
        "need of it in worker, volumes and volumeMounts"
    )
    _finish(ledger)


def _find_role(ledger: Ledger, owner: KeyPath, main: str) -> _Role:
    """Return the role at a path, with its container `main` or the first. Raises SpecError."""
    containers = ledger.items_at(*owner, "template", "spec", "containers")
    if not containers:
        expected = "a container: launcher and workers have one"
        raise ledger.type_error((*owner, "template", "spec", "containers"), expected)
    for path in containers:
        ledger.map_at(*path)
    named = [path for path in containers if main and ledger.text_at(*path, "name") == main]
    return _Role(owner, (named or containers)[0])


def _carry_over_roles(ledger: Ledger, roles: dict[str, _Role]) -> None:
    """Carry over pod templates but for commands, variables and resources; the workers' first."""
    worker = roles["worker"]
    for group, role in roles.items():
        _carry_over_role_image(ledger, role, None if role == worker else worker)
        _carry_over_labels(ledger, (*role.owner, "template", "metadata", "labels"), group)
        apply_table(ledger, "replicas", role.owner, group)
        apply_table(ledger, "pod", role.pod, group, worker.pod)
        apply_table(ledger, "container", role.container, group, worker.container)
        sidecars = {
            "worker": "worker.extraContainers",
            "master": "master.initContainers, with restartPolicy: Always",
        }
        for path in ledger.items_at(*role.pod, "containers"):
            if path != role.container:
                ledger.leave_out(path, "copy it into " + sidecars[group])
    carry_over_capabilities(ledger, (*worker.container, "securityContext", "capabilities"))
    check_user(ledger, _IMAGE_USER)
    places = [
        ((*role.pod, "volumes"), (*role.container, "volumeMounts")) for role in roles.values()
    ]
    carry_over_volumes(ledger, places, _volumes_of_workers_only(ledger, list(roles.values())))


def _carry_over_role_image(ledger: Ledger, role: _Role, worker: _Role | None) -> None:
    """Carry over the image of the workers, or of the launcher if `worker` has another one."""
    old = (*role.container, "image")
    if worker is None:
        carry_over_image(ledger, old, ("image",))
    elif ledger.text_at(*old) in ("", ledger.text_at(*worker.container, "image")):
        ledger.drop(old, "the master uses the workers' image")
    else:
        carry_over_image(ledger, old, ("master", "image"))


def _volumes_of_workers_only(ledger: Ledger, roles: Sequence[_Role]) -> set[str]:
    """Return the names of the volumes that the master does not need, or may be unable to mount."""
    volumes, *others = (
        {ledger.text_at(*path, "name"): path for path in ledger.items_at(*role.pod, "volumes")}
        for role in roles
    )
    if others:
        return volumes.keys() - others[0].keys()
    # The master may run on a node without these. It starts the ranks, so it has the others.
    return {
        name
        for name, path in volumes.items()
        if ledger.value_at(*path, "hostPath")
        or ledger.value_at(*path, "emptyDir", "medium") == "HugePages"
    }


def _carry_over_labels(ledger: Ledger, labels: KeyPath, group: str) -> None:
    """Carry over labels of pods, without those that select the pods of the chart."""
    charts_labels = (NAME_LABEL, INSTANCE_LABEL, COMPONENT_LABEL)
    pod_labels = ledger.map_at(*labels)
    for name in sorted(pod_labels.keys() & charts_labels):
        ledger.leave_out((*labels, name), "the chart's pods have their own")
    others = {name: value for name, value in pod_labels.items() if name not in charts_labels}
    if others:
        ledger.carry_over(labels, (group, "podLabels"), "", others)


@dataclass(frozen=True)
class _Pods:
    """The equal pods of a job that train: their number, and what the file says of each.

    `processes` and `gpus` are those of a pod, None if the file does not say it.
    """

    number: int
    processes: int | None
    gpus: int | None

    @property
    def slots(self) -> int:
        """The processes that the operator starts in a pod, or expects."""
        return self.processes or self.gpus or 1

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the operators set in each pod to the same value."""
        return {
            "WORLD_SIZE": str(self.number * (self.processes or 1)),
            "PET_NNODES": str(self.number),
            "PET_NPROC_PER_NODE": str(self.slots),
        }


def _carry_over_training(
    ledger: Ledger,
    container: KeyPath,
    resources: str,
    number: int,
    owner: KeyPath,
    per_node: KeyPath,
) -> LauncherLine:
    """Carry over the command, the variables and the size of `number` equal pods.

    `owner` is the path of the number. `per_node` is the number of processes of a pod, or a word.
    Returns what was read of the command.
    """
    gpus = carry_over_resources(ledger, (*container, resources))
    pods = _Pods(number, _processes(ledger, per_node), gpus)
    old, line = _carry_over_training_variables(ledger, container, resources, pods)
    slots = pods.slots if line.mode == "mpirun" else line.size.per_host or 1
    _carry_over_limits(ledger, old, line, pods, slots, owner)
    _check_processes(ledger, line, pods, slots, per_node)
    return line


def _read_training(
    ledger: Ledger, pods: _Pods, places: Collection[str], old: KeyPath, words: Sequence[str]
) -> LauncherLine:
    """Return what the words of a command mean in such pods. Raises SpecError.

    The command may not refer to `places`, variables that differ between the pods of the old job.
    """
    if not words:
        return LauncherLine(
            "direct", framework="torch", size=LineSize(per_host=pods.processes or pods.gpus)
        )
    try:
        line = parse_container(words, pods.number, pods.slots, pods.variables)
    except NotUnderstoodError as error:
        expected = "the launcher's line alone, as a list of arguments without a shell"
        raise ledger.error(old, str(error), expected) from None
    for name in places:
        if f"$({name})" in "\n".join(line.command):
            problem = f"only a pod of the old job knows $({name})"
            raise ledger.error(old, problem, f"a program that reads the variable {name} itself")
    return line


def _carry_over_training_variables(
    ledger: Ledger, container: KeyPath, resources: str, pods: _Pods
) -> tuple[KeyPath, LauncherLine]:
    """Carry over the command and the variables; return the command's path and what was read."""
    variables = variables_at(ledger, (*container, "env"))
    pod_variables = pods.variables
    operators = {name: {"name": name, "value": value} for name, value in pod_variables.items()}
    places = sorted(OWN_OF_RANKS - pod_variables.keys())
    fixed = {name: entry for name, entry in variables.items() if name not in places}
    read_line = partial(_read_training, ledger, pods, places)
    old, line = _carry_over_command(ledger, container, {**operators, **fixed}, read_line)
    won = list_exports(ledger, container, line, variables)
    env = {(*container, "env"): ""}
    carry_over_variables(ledger, env, ("worker", "env"), won, (*container, resources))
    return old, line


def _carry_over_limits(
    ledger: Ledger, old: KeyPath, line: LauncherLine, pods: _Pods, slots: int, owner: KeyPath
) -> None:
    """Carry over the size of the run, with the limits of an elastic job."""
    least, most = (ledger.integer_at(*_ELASTIC, f"{key}Replicas") for key in ("min", "max"))
    line.size = replace(
        line.size, min_workers=least or line.size.min_workers, max_ranks=most and most * slots
    )
    carry_over_size(ledger, old, line, pods.number, slots, owner)
    if least and "minimum" in ledger.values["worker"]:
        ledger.change((*_ELASTIC, "minReplicas"), ("worker", "minimum"))


def _check_processes(
    ledger: Ledger, line: LauncherLine, pods: _Pods, slots: int, per_node: KeyPath
) -> None:
    """Compare the slots of a worker with the processes at `per_node` and with the GPUs of a pod."""
    asked = pods.processes
    if asked and asked != slots:
        ledger.leave_out(
            per_node,
            f"worker.slots is {slots}, the number of ranks that the command starts in a pod. If "
            f"the operator started it {asked} times, as with MPI or Flux, set worker.slots to "
            f"{asked}",
        )
    ledger.change(per_node, ("worker", "slots"))
    has_number = any(part.text.startswith("--nproc") for part in line.parts)
    if line.launcher == "torchrun" and not (asked or pods.gpus or has_number):
        ledger.add_check("torchrun started a process for each CPU of a pod: set worker.slots")
    if pods.gpus and pods.gpus != slots:
        ledger.add_check(
            f"a pod had {pluralize(pods.gpus, 'GPU')}, and worker.slots is {slots}, the number of "
            "its processes: for a rank on each GPU, make them equal"
        )


def _carry_over_command(
    ledger: Ledger,
    container: KeyPath,
    variables: Mapping[str, Variable],
    read_line: Callable[[KeyPath, Sequence[str]], LauncherLine],
) -> tuple[KeyPath, LauncherLine]:
    """Carry over a container's command, with a check for an entry point that gets arguments."""
    if ledger.list_at(*container, "args") and not ledger.list_at(*container, "command"):
        ledger.add_check(
            "the file has arguments and no command, so the image's entry point got them; here they "
            "are the whole command line"
        )
    return carry_over_command(ledger, container, variables, read_line)


def _processes(ledger: Ledger, path: KeyPath) -> int | None:
    """Return the processes of a pod; None if the number of GPUs decides. Raises SpecError."""
    text = ledger.text_at(*path)
    if text in ("", "auto", "gpu", "cpu"):
        return None
    try:
        return read_count("it", text)
    except NotUnderstoodError:
        raise ledger.type_error(path, "a number, auto, gpu or cpu") from None


def _finish(ledger: Ledger) -> None:
    """Convert the metadata and the policies of a job, and name what is left over."""
    names = [ledger.text_at("metadata", key) for key in ("name", "generateName")]
    ledger.release = names[0] or names[1]
    ledger.namespace = ledger.text_at("metadata", "namespace")
    for key in ("name", "generateName"):
        ledger.change(("metadata", key), ("helm install NAME",))
    ledger.change(("metadata", "namespace"), ("helm --namespace",))
    queue = ("metadata", "labels", _QUEUE_LABEL)
    ledger.carry_over(queue, ("queueName",), "Kueue's LocalQueue")
    apply_table(ledger, "manifest")
    for policy in (("spec", "runPolicy"), ("spec",)):
        apply_table(ledger, "run policy", policy)
        # A job for a queue is created suspended. This chart would wait for its user instead.
        by = "Kueue" if ledger.is_set(queue) else "the user"
        apply_table(ledger, f"suspended by {by}", policy)
    if "ttlSecondsAfterFinished" in ledger.values.get("master", {}) and (
        ledger.values.get("cleanup") != "Always"
    ):
        ledger.values["cleanup"] = "Always"
        ledger.add_check(
            "cleanup is Always, because ttlSecondsAfterFinished deletes the Job and would leave "
            "the workers of a failed run"
        )
    apply_table(ledger, "job", ("spec",))
    ledger.close()
