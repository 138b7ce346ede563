"""Convert jobs whose pods all train: PyTorchJobs and TrainJobs of Kubeflow. Pure.

Their ranks connect by variables that the chart also sets, so the master starts the ranks itself.
Sources of the fields: Training Operator's types kubeflow.org/v1, and Trainer's types
trainer.kubeflow.org/v1alpha1.
"""

from __future__ import annotations

from dataclasses import replace

from hvdchart.migrate import carry_over, pod_spec
from hvdchart.migrate.command_line import CommandLine
from hvdchart.migrate.launch_lines import parse_container
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.line_size import LineSize, NotUnderstoodError, read_count
from hvdchart.migrate.roles import (
    Role,
    carry_over_container,
    carry_over_names,
    carry_over_run_policy,
    carry_over_template,
    drop_all,
    find_role,
)
from hvdchart.quantity import pluralize
from hvdchart.spec.paths import KeyPath, value_at
from hvdchart.spec.yaml_tree import Plain

PYTORCHJOB_VERSION = "kubeflow.org/v1"
TRAINJOB_VERSION = "trainer.kubeflow.org/v1alpha1"
_REPLICAS: KeyPath = ("spec", "pytorchReplicaSpecs")
_TRAINER: KeyPath = ("spec", "trainer")
_NAMED_NUMBERS = ("auto", "gpu", "cpu")
_ELASTIC: KeyPath = ("spec", "elasticPolicy")
_POLICYS_OWN = {
    **dict.fromkeys(
        ("rdzvBackend", "rdzvHost", "rdzvPort", "rdzvId", "rdzvConf", "standalone"),
        "the chart sets where ranks meet",
    ),
    "maxReplicas": "the run uses at most worker.number workers",
    "maxRestarts": "master.backoffLimit sets the number of retries",
}
_ALONE = "the launcher's line alone, as a list of arguments without a shell"
_TRAINERS_OWN = {
    "runtimeRef": "the chart has no runtimes",
    "managedBy": "the chart's objects have no other controller",
}


def migrate_pytorchjob(ledger: Ledger) -> None:
    carry_over_names(ledger, "PyTorchJob")
    given = [(*_REPLICAS, role) for role in ("Worker", "Master") if ledger.has((*_REPLICAS, role))]
    if not given:
        raise ledger.type_error(_REPLICAS, "a Master, Workers or both")
    role = find_role(ledger, given[0], "pytorch")
    number = 0
    for owner in given:
        replicas = ledger.integer_at(*owner, "replicas")
        number += 1 if replicas is None else replicas
        ledger.change((*owner, "replicas"), ("worker", "number"), "all pods train")
    if not ledger.text_at(*role.container, "image"):
        raise ledger.type_error((*role.container, "image"), "the workers' image")
    pod_spec.carry_over_image(ledger, (*role.container, "image"), ("image",))
    ledger.carry_over((*role.container, "imagePullPolicy"), ("image", "pullPolicy"))
    in_policy = (*_ELASTIC, "nProcPerNode")
    each = in_policy if ledger.has(in_policy) else ("spec", "nprocPerNode")
    minimum = ledger.integer_at(*_ELASTIC, "minReplicas")
    if minimum and minimum > number:
        problem = f"{minimum} is more than the {number} pods of the job"
        raise ledger.error((*_ELASTIC, "minReplicas"), problem, f"at most {number}")
    _carry_over_training(ledger, role.container, "resources", number, given[0], each, minimum)
    _carry_over_policy(ledger, number)
    carry_over_template(ledger, role, "worker")
    pod_spec.carry_over_security(ledger, role.pod, role.container)
    _carry_over_volumes(ledger, role)
    ledger.change((*role.container, "workingDir"), ("master", "container", "workingDir"))
    if workdir := ledger.text_at(*role.container, "workingDir"):
        for group in ("worker", "master"):
            ledger.put((group, "container", "workingDir"), workdir, role.container)
    carry_over_container(ledger, role, "worker")
    for owner in given[1:]:
        _drop_other_template(ledger, owner, role)
    carry_over_run_policy(ledger)
    ledger.close()


def migrate_trainjob(ledger: Ledger) -> None:
    carry_over_names(ledger, "TrainJob")
    runtime = ledger.text_at("spec", "runtimeRef", "name") or "without a name"
    if ledger.text_at(*_TRAINER, "image"):
        pod_spec.carry_over_image(ledger, (*_TRAINER, "image"), ("image",))
    else:
        ledger.add_check(
            f"the image is that of the runtime {runtime}: set image.repository and image.tag"
        )
    number = ledger.integer_at(*_TRAINER, "numNodes")
    if number is None:
        ledger.add_check(f"numNodes is that of the runtime {runtime}: set worker.number")
    ledger.change((*_TRAINER, "numNodes"), ("worker", "number"))
    each = (*_TRAINER, "numProcPerNode")
    _carry_over_training(ledger, _TRAINER, "resourcesPerNode", number or 1, _TRAINER, each)
    pod_spec.check_identity(ledger, "the image's user, often root")
    ledger.add_check(
        f"the runtime {runtime} has a pod template, which is not in the file: set what the ranks "
        "need of it in worker, volumes and volumeMounts"
    )
    ledger.carry_over(
        ("spec", "suspend"), ("master", "suspend"), "", ledger.is_true("spec", "suspend")
    )
    ledger.leave_out(("spec", "initializer"), "fetch data and model with staging.command")
    for key in ("podTemplateOverrides", "podSpecOverrides", "runtimePatches"):
        ledger.leave_out(("spec", key), "set the same fields in worker")
    drop_all(ledger, ("spec",), _TRAINERS_OWN)
    ledger.close()


def _carry_over_training(
    ledger: Ledger,
    container: KeyPath,
    resources: str,
    number: int,
    owner: KeyPath,
    each: KeyPath,
    minimum: int | None = None,
) -> None:
    """Carry over the command, the variables and the size of `number` equal pods.

    `owner` is the path of the number. `each` is the number of processes of a pod, or a word.
    `minimum` is the minimum number of pods.
    """
    gpus = pod_spec.carry_over_resources(ledger, (*container, resources))
    asked = _processes(ledger, each)
    ledger.change(each, ("worker", "slots"))
    old, line = _carry_over_command(ledger, container, number, asked, gpus)
    if minimum:
        line = replace(line, size=replace(line.size, min_workers=minimum))
    variables = carry_over.variables_at(ledger, (*container, "env"))
    won = carry_over.exported(ledger, container, line, variables)
    carry_over.carry_over_variables(
        ledger, {(*container, "env"): ""}, ("worker", "env"), won, (*container, resources)
    )
    slots = (asked or gpus or 1) if line.mode == "mpirun" else line.size.per_host or 1
    ledger.put(("worker", "number"), number, owner)
    ledger.put(("worker", "slots"), slots, owner)
    carry_over.check_size(ledger, old, line, number, slots, owner)
    if gpus and gpus != slots:
        ledger.add_check(
            f"a pod had {pluralize(gpus, 'GPU')}, and worker.slots is {slots}, the number of its "
            "processes: for a rank on each GPU, make them equal"
        )


def _carry_over_policy(ledger: Ledger, number: int) -> None:
    """Convert the elasticPolicy of `number` pods."""
    least = (*_ELASTIC, "minReplicas")
    if value_at(ledger.values, ("worker", "minimum")):
        ledger.change(least, ("worker", "minimum"))
    else:
        ledger.drop(least, carry_over.NO_MINIMUM)
    most = ledger.integer_at(*_ELASTIC, "maxReplicas")
    if most and most > number:
        what = f"the run uses at most worker.number workers: for more set it to {most}"
        ledger.leave_out((*_ELASTIC, "maxReplicas"), what)
    drop_all(ledger, _ELASTIC, _POLICYS_OWN)
    ledger.leave_out((*_ELASTIC, "metrics"), "hvdchart scale changes the number of workers")


def _processes(ledger: Ledger, path: KeyPath) -> int | None:
    """Return the processes of a pod; None if the number of GPUs decides. Raises SpecError."""
    text = ledger.text_at(*path)
    if not text or text in _NAMED_NUMBERS:
        if text == "cpu":
            ledger.add_check("the job started a process for each CPU: set worker.slots")
        return None
    try:
        return read_count("it", text)
    except NotUnderstoodError:
        raise ledger.type_error(path, "a number, auto, gpu or cpu") from None


def _carry_over_command(
    ledger: Ledger, container: KeyPath, number: int, asked: int | None, gpus: int | None
) -> tuple[KeyPath, CommandLine]:
    """Carry over the command line; return its path and the parsed line."""
    old, items = carry_over.command_at(ledger, container)
    if not items:
        ledger.add_check(
            "the job has no command, so that of its image or runtime ran; this chart runs a check "
            "of allreduce instead. Put the command into master.args"
        )
        line = CommandLine("direct", framework="torch", size=LineSize(per_host=asked or gpus))
        carry_over.carry_over_line(ledger, container, line)
        return container, line
    ledger.change(old, ("master", "args"), "each part has a line of its own")
    each = asked or gpus or 1
    # The variables that the operators set in each pod.
    known = {
        "WORLD_SIZE": str(number * (asked or 1)),
        "PET_NNODES": str(number),
        "PET_NPROC_PER_NODE": str(each),
    }
    variables: dict[str, carry_over.Variable] = {
        **{name: {"name": name, "value": value} for name, value in known.items()},
        **carry_over.variables_at(ledger, (*container, "env")),
    }
    words = [
        carry_over.expand_references(ledger, at, ledger.text_at(*at), variables) for at in items
    ]
    try:
        line = parse_container(words, number, each, known)
    except NotUnderstoodError as error:
        raise ledger.error(old, str(error), _ALONE) from None
    carry_over.carry_over_line(ledger, old, line)
    return old, line


def _carry_over_volumes(ledger: Ledger, role: Role) -> None:
    entries: dict[str, Plain] = {
        ledger.text_at(*path, "name"): ledger.map_at(*path)
        for path in ledger.items_at(*role.pod, "volumes")
    }
    # The master may run on a node without these volumes. It starts the ranks, so it has the other
    # volumes.
    own = [
        name
        for name, entry in entries.items()
        if value_at(entry, ("hostPath",)) or value_at(entry, ("emptyDir", "medium")) == "HugePages"
    ]
    volumes = pod_spec.Volumes(ledger, own)
    volumes.add((*role.pod, "volumes"), (*role.container, "volumeMounts"))
    volumes.put(role.owner)


def _drop_other_template(ledger: Ledger, owner: KeyPath, role: Role) -> None:
    """Drop the template of the Master if there is also that of the Workers."""
    path = (*owner, "template")
    if ledger.value_at(*path) == ledger.value_at(*role.owner, "template"):
        ledger.drop(path, "that of the workers is for all pods")
    else:
        ledger.leave_out(path, "all pods are made from that of the workers: compare the two")
    ledger.drop((*owner, "restartPolicy"), "master.backoffLimit sets the number of retries")
