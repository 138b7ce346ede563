"""Converts jobs of one launcher and its workers: MPIJobs of Kubeflow and Jobs of Volcano. Pure.

Sources of the fields: MPI Operator's types kubeflow.org/v1 and v2beta1 (mpi-operator 0.6), and
Volcano's Job with its plugin `mpi`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hvdchart.migrate import launch, pod_spec
from hvdchart.migrate.command_line import CommandLine, only_starts_sshd
from hvdchart.migrate.ledger import Ledger
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import shorten
from hvdchart.text import join_names

MPIJOB_VERSIONS = ("kubeflow.org/v1", "kubeflow.org/v1alpha2", "kubeflow.org/v2beta1")
_REPLICAS: KeyPath = ("spec", "mpiReplicaSpecs")
# The operator cleans up when a job ends, whether it succeeded or failed.
_CLEANUP = {"All": "Always", "Running": "Always", "None": "Never"}
VOLCANO_VERSION = "batch.volcano.sh/v1alpha1"
_LAUNCHER_NAMES = ("master", "launcher", "mpimaster")
KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
# Fields that only the operators need, and what the chart does instead.
_MPIJOBS_OWN = {
    "sshAuthMountPath": "the chart needs no SSH keys",
    "launcherCreationPolicy": "the master starts at once and waits for the workers",
    "mainContainer": "the values are those of this container",
    "mpiImplementation": "the chart detects the image's MPI",
    "mpiDistribution": "the chart detects the image's MPI",
}
_SIDECAR_VALUES = {
    "worker": "worker.extraContainers",
    "master": "master.initContainers, with restartPolicy: Always",
}
_RETRIES = "the master waits for its hosts, retries, and ends the run"
_GANG = "the gang is the master and all workers"
_VOLCANOS_OWN = {
    "plugins": "the chart sets up the agents, the Service and the host file",
    **dict.fromkeys(("minAvailable", "minSuccess"), _GANG),
    **dict.fromkeys(("policies", "runningEstimate", "networkTopology"), _RETRIES),
}
_TASKS_OWN = {
    "name": "the chart names its pods worker and master",
    **dict.fromkeys(("minAvailable", "topologyPolicy", "partitionPolicy"), _GANG),
    **dict.fromkeys(("policies", "maxRetry", "dependsOn"), _RETRIES),
}


def migrate_mpijob(ledger: Ledger) -> None:
    _carry_over_names(ledger, "MPIJob")
    main = ledger.text_at("spec", "mainContainer")
    worker = _find_role(ledger, (*_REPLICAS, "Worker"), main)
    launcher = _find_role(ledger, (*_REPLICAS, "Launcher"), main)
    implementation = ledger.text_at("spec", "mpiImplementation") or ledger.text_at(
        "spec", "mpiDistribution"
    )
    exports_all = implementation in ("Intel", "IntelMPI", "MPICH")
    line = _carry_over_roles(ledger, launcher, worker, exports_all=exports_all)
    as_worker = ("spec", "runLauncherAsWorker")
    more = int(ledger.is_true(*as_worker))
    resources = (*launcher.container, "resources")
    if more:
        reason = "one more worker, because the master runs no ranks"
        ledger.change(as_worker, ("worker", "number"), reason)
        ledger.drop(resources, "for the launcher's ranks, which one more worker runs")
    else:
        ledger.carry_over(resources, ("master", "resources"))
    ledger.drop(as_worker, "the master runs no ranks")
    _carry_over_workers(ledger, worker, line, ("spec", "slotsPerWorker"), more)
    _carry_over_run_policy(ledger)
    _drop_all(ledger, ("spec",), _MPIJOBS_OWN)
    if implementation not in ("", "OpenMPI"):
        ledger.add_check(f"mpiImplementation was {implementation}: check that the image has it")
    ledger.close()


def _carry_over_run_policy(ledger: Ledger) -> None:
    for policy in (("spec", "runPolicy"), ("spec",)):
        for key in ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
            path = (*policy, key)
            ledger.carry_over(path, ("master", key), "", ledger.integer_at(*path))
        path = (*policy, "suspend")
        ledger.carry_over(path, ("master", "suspend"), "", ledger.is_true(*path))
        ledger.drop((*policy, "managedBy"), "the chart's objects have no other controller")
        _carry_over_cleanup(ledger, (*policy, "cleanPodPolicy"))
    _clean_up_for_ttl(ledger)
    scheduling: KeyPath = ("spec", "runPolicy", "schedulingPolicy")
    ledger.carry_over((*scheduling, "priorityClass"), ("priorityClassName",))
    what = "set gang to Volcano or SchedulerPlugins, and with Volcano queueName to its queue"
    ledger.leave_out(scheduling, what)


def _carry_over_cleanup(ledger: Ledger, path: KeyPath) -> None:
    """The operator's cleanPodPolicy -> cleanup."""
    word = ledger.text_at(*path)
    if word and word not in _CLEANUP:
        raise ledger.type_error(path, f"one of {', '.join(_CLEANUP)}")
    ledger.carry_over(path, ("cleanup",), "the same meaning", _CLEANUP.get(word))


def _clean_up_for_ttl(ledger: Ledger) -> None:
    """Set cleanup to Always, where a time to live would leave the workers of a failed run."""
    if "ttlSecondsAfterFinished" in ledger.values.get("master", {}) and (
        ledger.values.get("cleanup") != "Always"
    ):
        ledger.replace(("cleanup",), "Always")
        ledger.add_check(
            "cleanup is Always, because ttlSecondsAfterFinished deletes the Job and would leave "
            "the workers of a failed run"
        )


def migrate_volcano(ledger: Ledger) -> None:
    tasks = ledger.items_at("spec", "tasks")
    launcher_task, worker_task = _find_tasks(ledger, tasks)
    _carry_over_names(ledger, "Volcano Job")
    launcher = _find_role(ledger, launcher_task)
    worker = _find_role(ledger, worker_task)
    line = _carry_over_roles(ledger, launcher, worker)
    ledger.carry_over((*launcher.container, "resources"), ("master", "resources"))
    if line.mode == "custom":
        ledger.add_check(
            "the master's command reads Volcano's files below /etc/volcano or has a step of its "
            "own: put the training command alone into master.args and remove launch.mode"
        )
    _carry_over_workers(ledger, worker, line, ())
    scheduler = ("spec", "schedulerName")
    if ledger.text_at(*scheduler) in ("", "volcano"):
        ledger.put(("gang",), "Volcano", ("spec",))
        ledger.drop(scheduler, "gang Volcano names its scheduler")
    else:
        ledger.carry_over(scheduler, ("schedulerName",))
    ledger.carry_over(("spec", "queue"), ("queueName",), "Volcano's queue")
    ledger.carry_over(("spec", "priorityClassName"), ("priorityClassName",))
    for key, new in (("maxRetry", "backoffLimit"), ("ttlSecondsAfterFinished",) * 2):
        ledger.carry_over(("spec", key), ("master", new), "", ledger.integer_at("spec", key))
    _clean_up_for_ttl(ledger)
    _drop_all(ledger, ("spec",), _VOLCANOS_OWN)
    ledger.leave_out(("spec", "volumes"), "mount its claims with volumes and volumeMounts")
    for task in tasks:
        _drop_all(ledger, task, _TASKS_OWN)
    ledger.close()


def _find_tasks(ledger: Ledger, tasks: list[KeyPath]) -> tuple[KeyPath, KeyPath]:
    names = {ledger.text_at(*task, "name"): task for task in tasks}
    wanted = [name for name in names if name.lower() in _LAUNCHER_NAMES]
    if len(tasks) != 2 or len(names) != 2 or len(wanted) != 1:
        problem = f"the tasks are {', '.join(names) or 'missing'}"
        expected = "two tasks: one called master, mpimaster or launcher, and its workers"
        raise ledger.error(("spec", "tasks"), problem, expected)
    if (ledger.integer_at(*names[wanted[0]], "replicas") or 1) != 1:
        raise ledger.type_error((*names[wanted[0]], "replicas"), "one launcher")
    (workers,) = set(names) - set(wanted)
    return names[wanted[0]], names[workers]


def _drop_all(ledger: Ledger, above: KeyPath, reasons: dict[str, str]) -> None:
    for key, reason in reasons.items():
        ledger.drop((*above, key), reason)


@dataclass(frozen=True)
class _Role:
    """The launcher or the workers: the path of what has a `template`, and of its main container."""

    owner: KeyPath
    container: KeyPath

    @property
    def pod(self) -> KeyPath:
        """The path of the pod's spec."""
        return (*self.owner, "template", "spec")


def _find_role(ledger: Ledger, owner: KeyPath, main: str = "") -> _Role:
    """The role at a path, with its container called `main` or the first. Raises SpecError."""
    containers = ledger.items_at(*owner, "template", "spec", "containers")
    if not containers:
        expected = "a container: launcher and workers have one"
        raise ledger.type_error((*owner, "template", "spec", "containers"), expected)
    for path in containers:
        ledger.map_at(*path)
    named = [path for path in containers if main and ledger.text_at(*path, "name") == main]
    return _Role(owner, (named or containers)[0])


def _carry_over_names(ledger: Ledger, kind: str) -> None:
    """The metadata of the manifest."""
    for key in ("apiVersion", "kind"):
        ledger.drop((key,), "the chart makes a StatefulSet and a Job instead")
    names = [ledger.text_at("metadata", key) for key in ("name", "generateName", "namespace")]
    ledger.release = names[0] or names[1]
    ledger.namespace = names[2]
    for key, option in (
        ("name", "helm install NAME"),
        ("generateName", "helm install NAME"),
        ("namespace", "helm --namespace"),
    ):
        if ledger.has(("metadata", key)):
            ledger.change(("metadata", key), (option,))
    ledger.carry_over(("metadata", "labels", KUEUE_LABEL), ("queueName",), "Kueue's LocalQueue")
    ledger.drop(("metadata",), f"of the {kind} object, which Helm does not make")
    ledger.drop(("status",), "the operator writes it")


def _carry_over_roles(
    ledger: Ledger, launcher: _Role, worker: _Role, *, exports_all: bool = False
) -> CommandLine:
    """Everything in the two pod templates except resources; returns the launcher's line.

    `exports_all` is true where the MPI gives the launcher's variables to all ranks.
    """
    _carry_over_images(ledger, worker.container, launcher.container)
    line = _carry_over_command(ledger, worker.container, launcher.container, exports_all)
    for role, group in ((worker, "worker"), (launcher, "master")):
        pod_spec.carry_over_pod(ledger, role.pod, group)
        for key, new in (("labels", "podLabels"), ("annotations", "podAnnotations")):
            ledger.carry_over((*role.owner, "template", "metadata", key), (group, new))
    pod_spec.carry_over_security(ledger, worker.pod, worker.container)
    for path, same in ((launcher.pod, worker.pod), (launcher.container, worker.container)):
        own = (*path, "securityContext")
        if ledger.map_at(*own) == ledger.map_at(*same, "securityContext"):
            ledger.drop(own, "that of the workers is for all pods")
        else:
            ledger.leave_out(own, "that of the workers is for all pods")
    workers, launchers = (
        {ledger.text_at(*path, "name") for path in ledger.items_at(*role.pod, "volumes")}
        for role in (worker, launcher)
    )
    volumes = pod_spec.Volumes(ledger, workers - launchers)
    for role in (worker, launcher):
        volumes.add((*role.pod, "volumes"), (*role.container, "volumeMounts"))
    if gained := sorted(volumes.volumes.keys() - workers):
        ledger.add_check(
            f"the launcher alone had the volumes {join_names(gained)}: here the workers have them "
            "too, so that several nodes must be able to mount them"
        )
    volumes.put(worker.owner)
    _carry_over_worker_command(ledger, worker)
    for role, group in ((worker, "worker"), (launcher, "master")):
        ledger.carry_over((*role.container, "envFrom"), (group, "envFrom"))
        workdir = (group, "container", "workingDir")
        ledger.carry_over((*role.container, "workingDir"), workdir)
        _carry_over_other_containers(ledger, role, group)
        reason = "master.backoffLimit sets the number of retries"
        ledger.drop((*role.owner, "restartPolicy"), reason)
        ledger.drop((*role.container, "name"), "the chart names its containers worker and master")
        ledger.drop((*role.container, "ports"), "the chart opens agent.port")
    ledger.drop((*launcher.owner, "replicas"), "the chart has one master")
    return line


def _carry_over_workers(
    ledger: Ledger, worker: _Role, line: CommandLine, slots: KeyPath, more: int = 0
) -> None:
    """The workers, `more` than the replicas, and their slots, whose number is at `slots`."""
    replicas = (*worker.owner, "replicas")
    number = ledger.integer_at(*replicas)
    number = (1 if number is None else number) + more
    ledger.put(("worker", "number"), number, replicas)
    ledger.carry_over(replicas, ("worker", "number"), "", number)
    gpus = pod_spec.carry_over_resources(ledger, (*worker.container, "resources"))
    wanted = ledger.integer_at(*slots) if slots else None
    given = wanted or line.per_host or 1
    if gpus is not None and gpus != given:
        ledger.add_check(f"worker.slots is {gpus}, the number of GPUs; the job had {given}")
    if slots:
        ledger.carry_over(slots, ("worker", "slots"), "", gpus or wanted)
    ledger.put(("worker", "slots"), gpus or given, slots or replicas)
    launch.check_size(ledger, line, number, gpus or given, replicas)


def _carry_over_images(ledger: Ledger, worker: KeyPath, launcher: KeyPath) -> None:
    if not ledger.text_at(*worker, "image"):
        raise ledger.type_error((*worker, "image"), "the workers' image")
    pod_spec.carry_over_image(ledger, (*worker, "image"), ("image",))
    ledger.carry_over((*worker, "imagePullPolicy"), ("image", "pullPolicy"))
    same = "the master uses the workers' image settings"
    if ledger.text_at(*launcher, "image") in ("", ledger.text_at(*worker, "image")):
        ledger.drop((*launcher, "image"), same)
    else:
        pod_spec.carry_over_image(ledger, (*launcher, "image"), ("master", "image"))
    policy = (*launcher, "imagePullPolicy")
    if ledger.value_at(*policy) == ledger.value_at(*worker, "imagePullPolicy"):
        ledger.drop(policy, same)
    else:
        ledger.carry_over(policy, ("master", "image", "pullPolicy"))


def _carry_over_command(
    ledger: Ledger, worker: KeyPath, launcher: KeyPath, exports_all: bool
) -> CommandLine:
    command = (*launcher, "command")
    arguments = (*launcher, "args")
    items = [*ledger.items_at(*command), *ledger.items_at(*arguments)]
    old = command if ledger.list_at(*command) else arguments
    variables = launch.variables_at(ledger, (*launcher, "env"))
    line = CommandLine("mpirun")
    if items:
        words = [
            launch.expand_references(ledger, at, ledger.text_at(*at), variables) for at in items
        ]
        line = launch.carry_over_command(ledger, old, words)
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
    if exports_all and line.exports_all is None and line.mode == "mpirun":
        line.exports_all = True
    won = launch.exported(ledger, old, line, variables)
    launch.carry_over_variables(ledger, {(*worker, "env"): ""}, ("worker", "env"), won)
    launch.carry_over_variables(ledger, {(*launcher, "env"): ""}, ("master", "env"), {})
    return line


def _carry_over_worker_command(ledger: Ledger, worker: _Role) -> None:
    own: list[str] = []
    for key in ("command", "args"):
        own += [ledger.text_at(*item) for item in ledger.items_at(*worker.container, key)]
        ledger.drop((*worker.container, key), "the workers' program is the chart's agent")
    if not only_starts_sshd(own):
        ledger.add_check(
            f"the workers' own command is dropped ({shorten(' '.join(own))}): the chart starts its "
            "agent alone; do the rest in the image, or with worker.initContainers"
        )


def _carry_over_other_containers(ledger: Ledger, role: _Role, group: str) -> None:
    """Containers before the main one -> initContainers; those beside it are left out."""
    first = (*role.pod, "initContainers")
    ledger.carry_over(first, (group, "initContainers"))
    if ledger.list_at(*first):
        ledger.add_check(
            f"{group}.initContainers need a securityContext of their own under Pod Security "
            "restricted"
        )
    for path in ledger.items_at(*role.pod, "containers"):
        if path != role.container:
            ledger.leave_out(path, "copy it into " + _SIDECAR_VALUES[group])
