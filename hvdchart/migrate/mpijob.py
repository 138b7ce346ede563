"""Convert MPIJobs of Kubeflow: one launcher and its workers. Pure.

Sources of the fields: MPI Operator's types kubeflow.org/v1 and v2beta1 (mpi-operator 0.6).
"""

from __future__ import annotations

from dataclasses import replace

from hvdchart.migrate import carry_over, pod_spec
from hvdchart.migrate.command_line import CommandLine, only_starts_sshd
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.roles import (
    Role,
    carry_over_container,
    carry_over_names,
    carry_over_run_policy,
    carry_over_template,
    drop_all,
    find_role,
)
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import shorten
from hvdchart.text import join_names

MPIJOB_VERSIONS = ("kubeflow.org/v1", "kubeflow.org/v2beta1")
_REPLICAS: KeyPath = ("spec", "mpiReplicaSpecs")
# Fields that only the operator needs, and what the chart does instead.
_MPIJOBS_OWN = {
    "sshAuthMountPath": "the chart needs no SSH keys",
    "launcherCreationPolicy": "the master starts at once and waits for the workers",
    "mainContainer": "the values are those of this container",
    "mpiImplementation": "the chart detects the image's MPI",
    "mpiDistribution": "the chart detects the image's MPI",
}


def migrate_mpijob(ledger: Ledger) -> None:
    carry_over_names(ledger, "MPIJob")
    main = ledger.text_at("spec", "mainContainer")
    worker = find_role(ledger, (*_REPLICAS, "Worker"), main)
    launcher = find_role(ledger, (*_REPLICAS, "Launcher"), main)
    implementation = ledger.text_at("spec", "mpiImplementation") or ledger.text_at(
        "spec", "mpiDistribution"
    )
    exports_all = implementation in ("Intel", "IntelMPI", "MPICH")
    old, line = _carry_over_roles(ledger, launcher, worker, exports_all=exports_all)
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
    _carry_over_workers(ledger, worker, old, line, more)
    carry_over_run_policy(ledger)
    drop_all(ledger, ("spec",), _MPIJOBS_OWN)
    if implementation not in ("", "OpenMPI"):
        ledger.add_check(f"mpiImplementation was {implementation}: check that the image has it")
    ledger.close()


def _carry_over_roles(
    ledger: Ledger, launcher: Role, worker: Role, *, exports_all: bool
) -> tuple[KeyPath, CommandLine]:
    """Carry over the two pod templates except resources; return the launcher's line and its path.

    `exports_all` is true if the MPI passes the launcher's variables to all ranks.
    """
    _carry_over_images(ledger, worker.container, launcher.container)
    old, line = _carry_over_command(ledger, worker.container, launcher.container, exports_all)
    for role, group in ((worker, "worker"), (launcher, "master")):
        carry_over_template(ledger, role, group)
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
        carry_over_container(ledger, role, group)
    ledger.drop((*launcher.owner, "replicas"), "the chart has one master")
    return old, line


def _carry_over_workers(
    ledger: Ledger, worker: Role, old: KeyPath, line: CommandLine, more: int
) -> None:
    """Carry over the workers and their slots; `more` are added to the replicas.

    `old` is the path of the line.
    """
    replicas = (*worker.owner, "replicas")
    number = ledger.integer_at(*replicas)
    number = (1 if number is None else number) + more
    ledger.put(("worker", "number"), number, replicas)
    ledger.carry_over(replicas, ("worker", "number"), "", number)
    gpus = pod_spec.carry_over_resources(ledger, (*worker.container, "resources"))
    slots = ("spec", "slotsPerWorker")
    wanted = ledger.integer_at(*slots)
    given = wanted or line.size.per_host or 1
    if gpus is not None and gpus != given:
        ledger.add_check(f"worker.slots is {gpus}, the number of GPUs; the job had {given}")
    ledger.carry_over(slots, ("worker", "slots"), "", gpus or wanted)
    ledger.put(("worker", "slots"), gpus or given, slots)
    carry_over.check_size(ledger, old, line, number, gpus or given, replicas)


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
) -> tuple[KeyPath, CommandLine]:
    old, items = carry_over.command_at(ledger, launcher)
    variables = carry_over.variables_at(ledger, (*launcher, "env"))
    line = CommandLine("mpirun")
    if items:
        words = [
            carry_over.expand_references(ledger, at, ledger.text_at(*at), variables) for at in items
        ]
        line = carry_over.carry_over_command(ledger, old, words)
        if old[-1] == "args":
            ledger.add_check(
                "the launcher has arguments and no command, so the image's entry point got them; "
                "here they are the whole command line"
            )
    else:
        ledger.add_check(
            "the launcher has no command, so the image's own ran; this chart runs a check of "
            "allreduce instead. Put the command into master.args"
        )
    if exports_all and line.mode == "mpirun":
        line = replace(line, exports_all=True)
    won = carry_over.exported(ledger, old, line, variables)
    carry_over.carry_over_variables(
        ledger, {(*worker, "env"): ""}, ("worker", "env"), won, (*worker, "resources")
    )
    carry_over.carry_over_variables(ledger, {(*launcher, "env"): ""}, ("master", "env"), {})
    return old, line


def _carry_over_worker_command(ledger: Ledger, worker: Role) -> None:
    own: list[str] = []
    for key in ("command", "args"):
        own += [ledger.text_at(*item) for item in ledger.items_at(*worker.container, key)]
        ledger.drop((*worker.container, key), "the workers' program is the chart's agent")
    if not only_starts_sshd(own):
        ledger.add_check(
            f"the workers' own command is dropped ({shorten(' '.join(own))}): the chart starts its "
            "agent alone; do the rest in the image, or with worker.initContainers"
        )
