"""Values of the old published charts -> ours.

The keys are those of stable/horovod 1.0.2 (`master`) and of horovod's docker/helm 1.0.3 (`driver`),
and what they did is what those charts' templates do, which is not always what their README says.
"""

from __future__ import annotations

import math

from hvdchart.migrate.command_line import CommandLine
from hvdchart.migrate.ledger import Reading
from hvdchart.migrate.parts import (
    Environment,
    Volumes,
    keep_command,
    keep_env_map,
    keep_exports,
    keep_resources,
)
from hvdchart.migrate.pod_spec import keep_capabilities
from hvdchart.spec.yaml_tree import Plain

# The images that the two charts ran when the values named none.
DEFAULT_REPOSITORY = "horovod/horovod"
DEFAULT_WORKERS = 3
_NODES_PORTS = (range(2379, 2383), range(10248, 10261), range(30000, 32768))
_KEYS_MADE = "the chart makes the SSH keys and keeps them; own ones: ssh.existingSecret"


def migrate_chart(reading: Reading) -> None:
    """Fill in the values and lines of an old values file."""
    head = "driver" if reading.has(("driver",)) else "master"
    for path in (("worker",), (head,), ("ssh",), ("worker", "image"), (head, "image")):
        reading.map_at(*path)
    _images(reading, head)
    slots = keep_resources(reading, ("resources",))
    line = _command(reading, head)
    environment = Environment()
    keep_env_map(reading, (head, "env"), environment, "the old chart gave it to the workers too")
    keep_env_map(reading, ("worker", "env"), environment, "the old chart ignored it")
    launchers: dict[str, Plain] = dict(environment.entries)
    keep_exports(line, environment, launchers)
    environment.put(reading, ("worker", "env"), (head, "env"))
    _hosts(reading, line, slots)
    _network(reading)
    volumes = Volumes(reading)
    volumes.gather(("volumes",), ("volumeMounts",))
    volumes.put(("volumes",))
    _the_rest(reading, head)
    reading.rest("neither the old chart nor this one has such a key")
    _checks(reading, slots)


def _images(reading: Reading, head: str) -> None:
    for part in ("repository", "tag", "pullPolicy"):
        reading.keep(("worker", "image", part), ("image", part), "of master and workers")
        if reading.find("worker", "image", part) == reading.find(head, "image", part):
            reading.drop((head, "image", part), "as worker.image, which master and workers share")
        else:
            reading.keep((head, "image", part), ("master", "image", part))
    image = reading.values.get("image", {})
    if "tag" in image and "repository" not in image:
        reading.put(("image", "repository"), DEFAULT_REPOSITORY, ("worker", "image"))
        reading.check(f"image.repository was the old chart's default, {DEFAULT_REPOSITORY}")
    elif "repository" not in image:
        reading.check(
            f"the file names no worker image: the old chart ran {DEFAULT_REPOSITORY}, this one "
            "runs its own horovod-cpu; say image.repository and image.tag"
        )


def _command(reading: Reading, head: str) -> CommandLine:
    """The old chart joined all arguments with spaces and gave them to bash."""
    arguments = reading.list_at(head, "args")
    if not arguments:
        reading.drop((head, "args"), "empty")
        reading.check(
            "no training command: the old master slept for ever; this one runs an allreduce check. "
            "Put the command into master.args"
        )
        return CommandLine("mpirun")
    texts = [reading.text_at(head, "args", index) for index in range(len(arguments))]
    return keep_command(reading, (head, "args"), ["bash", "-c", " ".join(texts)])


def _hosts(reading: Reading, line: CommandLine, slots: int | None) -> None:
    """The old master was a host too, so np counted it."""
    number = reading.number_at("worker", "number")
    if number is None:
        number = DEFAULT_WORKERS
        reading.put(("worker", "number"), number, ("worker",))
        reading.check(f"worker.number was not said: {number}, the old chart's default")
    each = slots or 1
    if slots is not None:
        reading.put(("worker", "slots"), slots, ("resources",))
        reading.note(("resources",), f"{slots} GPUs", "worker.slots", "one rank a GPU")
    if line.ranks is not None and line.ranks > number * each:
        hosts = math.ceil(line.ranks / each) if line.ranks > (number + 1) * each else number + 1
        why = f"-np {line.ranks}: the old master ran ranks as a host of its own, this one runs none"
        reading.keep(("worker", "number"), ("worker", "number"), why, hosts)
        number = hosts
        reading.put(("worker", "number"), hosts, ("worker",))
    else:
        reading.keep(("worker", "number"), ("worker", "number"), "", number)
    if line.ranks is not None and line.ranks != number * each:
        reading.check(
            f"the old line ran {line.ranks} ranks; now {number} workers x {each} slots make "
            f"{number * each}"
        )


def _network(reading: Reading) -> None:
    port = reading.number_at("ssh", "port")
    if port is not None and port < 1024:
        reading.drop(("ssh", "port"), "workers do not run as root: the port is 2222 unless said")
    elif port is not None and reading.is_true("useHostNetwork") and _is_nodes_own(port):
        why = "on a node's own network that port is Kubernetes': it is 2222 unless said"
        reading.drop(("ssh", "port"), why)
    else:
        reading.keep(("ssh", "port"), ("ssh", "port"), "", port)
    for key in ("useSecrets", "hostKey", "hostKeyPub"):
        reading.drop(("ssh", key), _KEYS_MADE)
    for old, new in (("useHostNetwork", "hostNetwork"), ("useHostPID", "hostPID")):
        if reading.is_true(old):
            reading.keep((old,), (new,), "", True)
            reading.check(f"{new} is refused by Pod Security levels baseline and restricted")
        else:
            reading.drop((old,), "false is the default")


def _is_nodes_own(port: int) -> bool:
    """etcd, API server, kubelet and its kin, node ports: the chart refuses them on a node."""
    return port == 6443 or any(port in ports for ports in _NODES_PORTS)


def _the_rest(reading: Reading, head: str) -> None:
    reading.drop(("worker", "podManagementPolicy"), "the workers always start in parallel")
    reading.drop(("nameOverride",), "objects are named after the release; fullnameOverride")
    reading.keep(("fullnameOverride",), ("fullnameOverride",))
    reading.keep(("imagePullSecrets",), ("imagePullSecrets",))
    reading.keep(("annotations",), ("master", "podAnnotations"), "of the master's pod, as before")
    keep_capabilities(reading, ("capabilities",))
    for key in ("nodeSelector", "affinity", "tolerations"):
        reading.keep((key,), ("worker", key), "the old chart ignored it; taken for the workers")
    for part in (head, "worker"):
        if reading.is_true(part, "privileged"):
            why = (
                "not taken over: devices come by resources, RDMA by the capability IPC_LOCK; "
                "securityContext: {privileged: true, allowPrivilegeEscalation: true} has it back"
            )
            reading.drop((part, "privileged"), why)
        else:
            reading.drop((part, "privileged"), "false is the default")


def _checks(reading: Reading, slots: int | None) -> None:
    if "podSecurityContext" not in reading.values:
        reading.check(
            "pods ran as root; here they run as user 1000 on a read-only root file system. For an "
            "image that needs root: podSecurityContext: {runAsUser: 0, runAsGroup: 0, fsGroup: 0, "
            "runAsNonRoot: false}, securityContext: {readOnlyRootFilesystem: false}"
        )
    if slots is not None and slots > 1:
        reading.check(
            f"the old chart wrote slots=1 whatever the GPUs; now each worker runs {slots} ranks"
        )
