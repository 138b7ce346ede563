"""Converts values of the old published charts.

The keys are those of stable/horovod 1.0.2 (`master`) and of horovod's docker/helm 1.0.3 (`driver`).
Their meaning is that of those charts' templates, which differ from their READMEs.
"""

from __future__ import annotations

import itertools
import math

from hvdchart.migrate.command_line import CommandLine
from hvdchart.migrate.containers import (
    Environment,
    add_exports,
    add_variable_map,
    carry_over_command,
    carry_over_resources,
    check_ranks,
)
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.pod_spec import NOT_PRIVILEGED, RUN_AS_ROOT, carry_over_capabilities
from hvdchart.migrate.volumes import Volumes
from hvdchart.spec.paths import KeyPath, dotted

# What both old charts used when the values did not set it.
DEFAULT_REPOSITORY = "horovod/horovod"
DEFAULT_WORKERS = 3
# etcd, API server, kubelet and the components beside it, node ports: the chart rejects them as
# ssh.port on the host network.
_NODE_PORTS = (range(2379, 2383), range(6443, 6444), range(10248, 10261), range(30000, 32768))


def migrate_chart(ledger: Ledger) -> None:
    """Fill in the values and entries of an old values file."""
    head = "driver" if ledger.has(("driver",)) else "master"
    for path in (("worker",), (head,), ("ssh",), ("worker", "image"), (head, "image")):
        ledger.map_at(*path)
    _carry_over_images(ledger, head)
    gpus = carry_over_resources(ledger, ("resources",))
    line = _carry_over_arguments(ledger, head)
    environment = Environment()
    reason = "the old chart set it on the workers too"
    add_variable_map(ledger, (head, "env"), environment, reason)
    add_variable_map(ledger, ("worker", "env"), environment, "the old chart ignored it")
    add_exports(ledger, (head, "args"), line, environment, dict(environment.entries))
    environment.put(ledger, ("worker", "env"), (head, "env"))
    _carry_over_workers(ledger, line, gpus)
    _carry_over_network(ledger)
    volumes = Volumes(ledger)
    volumes.add(("volumes",), ("volumeMounts",))
    volumes.put(("volumes",))
    _carry_over_pods(ledger, head)
    ledger.drop_rest(lambda path: _unread_reason(ledger, head, path))
    if "podSecurityContext" not in ledger.values:
        ledger.add_check(f"the pods ran as root; {RUN_AS_ROOT}")
    if gpus is not None and gpus > 1:
        ledger.add_check(
            f"the old chart ran one rank on each worker, whatever its GPUs; now it runs {gpus}"
        )


def _carry_over_images(ledger: Ledger, head: str) -> None:
    for part in ("repository", "tag", "pullPolicy"):
        worker, master = ("worker", "image", part), (head, "image", part)
        ledger.carry_over(worker, ("image", part), "for master and workers")
        if ledger.value_at(*worker) == ledger.value_at(*master):
            ledger.drop(master, "the same as worker.image")
        else:
            ledger.carry_over(master, ("master", "image", part))
    image = ledger.values.get("image", {})
    if "repository" in image:
        return
    if "tag" in image:
        ledger.put(("image", "repository"), DEFAULT_REPOSITORY, ("worker", "image"))
        ledger.add_check(f"image.repository is the old chart's default, {DEFAULT_REPOSITORY}")
    else:
        ledger.add_check(
            f"the file names no worker image: the old chart ran {DEFAULT_REPOSITORY}, this one "
            "has no default; set image.repository and image.tag"
        )


def _carry_over_arguments(ledger: Ledger, head: str) -> CommandLine:
    """The old chart joined all arguments with spaces and passed them to bash."""
    arguments = [ledger.text_at(*item) for item in ledger.items_at(head, "args")]
    if arguments:
        return carry_over_command(ledger, (head, "args"), ["bash", "-c", " ".join(arguments)])
    ledger.add_check(
        "the file has no training command: the old master waited for ever, this one runs a check "
        "of allreduce. Put the command into master.args"
    )
    return CommandLine("mpirun")


def _carry_over_workers(ledger: Ledger, line: CommandLine, gpus: int | None) -> None:
    """The number of workers: `-np` counted the old master, which was a host too."""
    path = ("worker", "number")
    number = ledger.integer_at(*path)
    if number is None:
        number = DEFAULT_WORKERS
        ledger.add_check(f"worker.number is the old chart's default, {number}")
    slots = gpus or 1
    if gpus is not None:
        ledger.put(("worker", "slots"), gpus, ("resources",))
        ledger.add_part(("resources",), f"{gpus} GPUs", "worker.slots", "one rank for each GPU")
    reason = ""
    if line.ranks is not None and line.ranks > number * slots:
        number = max(number + 1, math.ceil(line.ranks / slots))
        reason = f"-np {line.ranks}: the old master ran ranks too, this one runs none"
    ledger.put(path, number, path)
    ledger.carry_over(path, path, reason, number)
    check_ranks(ledger, line, number, slots)


def _carry_over_network(ledger: Ledger) -> None:
    path = ("ssh", "port")
    port = ledger.integer_at(*path)
    if port is not None and port < 1024:
        ledger.drop(path, "this chart takes ports from 1024; its default is 2222")
    elif ledger.is_true("useHostNetwork") and any(port in ports for ports in _NODE_PORTS):
        reason = "on the host network this port belongs to Kubernetes; the chart's default is 2222"
        ledger.drop(path, reason)
    else:
        ledger.carry_over(path, path, "", port)
    for key in ("useSecrets", "hostKey", "hostKeyPub"):
        reason = "the chart makes the SSH keys; to use your own set ssh.existingSecret"
        ledger.drop(("ssh", key), reason)
    for old, new in (("useHostNetwork", "hostNetwork"), ("useHostPID", "hostPID")):
        if ledger.is_true(old):
            ledger.carry_over((old,), (new,), "", True)
            ledger.add_check(f"the Pod Security levels baseline and restricted reject {new}")
        else:
            ledger.drop((old,), "false is the default")


def _carry_over_pods(ledger: Ledger, head: str) -> None:
    ledger.drop(("worker", "podManagementPolicy"), "the workers always start in parallel")
    ledger.drop(("nameOverride",), "objects are named after the release, or fullnameOverride")
    for key in ("fullnameOverride", "imagePullSecrets"):
        ledger.carry_over((key,), (key,))
    ledger.carry_over(("annotations",), ("master", "podAnnotations"), "for the master, as before")
    carry_over_capabilities(ledger, ("capabilities",))
    for key in ("nodeSelector", "affinity", "tolerations"):
        reason = "for the workers; the old chart ignored it"
        ledger.carry_over((key,), ("worker", key), reason)
    for part in (head, "worker"):
        privileged = ledger.is_true(part, "privileged")
        reason = NOT_PRIVILEGED if privileged else "false is the default"
        ledger.drop((part, "privileged"), reason)


def _unread_reason(ledger: Ledger, head: str, path: KeyPath) -> str:
    """Why a key that the old chart does not have is dropped."""
    keys = tuple(itertools.takewhile(lambda step: isinstance(step, str), path))
    new = ("master", *keys[1:]) if keys[0] == head else keys
    if ledger.chart_reads(new):
        return f"the old chart ignored it; to use it now, set {dotted(new)} in the new values"
    return "neither the old chart nor this one has such a key"
