"""Convert values of the old published charts.

Sources of the keys: stable/horovod 1.0.2 (`master`) and horovod's docker/helm 1.0.3 (`driver`). The
meaning of a key is its effect in the templates of these charts, which differs from their READMEs.
"""

from __future__ import annotations

from hvdchart.migrate import carry_over, pod_spec
from hvdchart.migrate.command_line import CommandLine
from hvdchart.migrate.ledger import Ledger
from hvdchart.spec.paths import KeyPath

NAME = "the old chart"
# One of these keys is enough: no other chart has them.
MARKS = (
    ("worker", "number"),
    ("worker", "image", "repository"),
    ("worker", "image", "tag"),
    ("master", "args"),
    ("driver", "args"),
    ("master", "image"),
    ("driver", "image"),
    ("ssh", "useSecrets"),
    ("ssh", "hostKey"),
    ("ssh", "hostKeyPub"),
)
# The defaults of both old charts.
DEFAULT_REPOSITORY = "horovod/horovod"
DEFAULT_WORKERS = 3
# Ports of etcd, the API server, the kubelet and its components, and node ports: the chart rejects
# them as agent.port on the host network.
_NODE_PORTS = (range(2379, 2383), range(6443, 6444), range(10248, 10261), range(30000, 32768))


def migrate_chart(ledger: Ledger) -> None:
    """Fill in the values and entries of an old values file, as a `convert.Reader`."""
    head = "driver" if ledger.has(("driver",)) else "master"
    for path in (("worker",), (head,), ("ssh",), ("worker", "image"), (head, "image")):
        ledger.map_at(*path)
    _carry_over_images(ledger, head)
    gpus = pod_spec.carry_over_resources(ledger, ("resources",))
    line = _carry_over_arguments(ledger, head)
    # The old chart also set the master's variables in the workers.
    mine = carry_over.variables_at(ledger, (head, "env"))
    variables = {**carry_over.variables_at(ledger, ("worker", "env")), **mine}
    won = {**mine, **carry_over.exported(ledger, (head, "args"), line, variables)}
    reasons: dict[KeyPath, str] = {
        (head, "env"): "the old chart set it on the workers too",
        ("worker", "env"): "the old chart ignored it",
    }
    carry_over.carry_over_variables(ledger, reasons, ("worker", "env"), won, ("resources",))
    _carry_over_workers(ledger, head, line, gpus)
    _carry_over_network(ledger)
    volumes = pod_spec.Volumes(ledger)
    volumes.add(("volumes",), ("volumeMounts",))
    volumes.put(("volumes",))
    _carry_over_pods(ledger, head)
    ledger.close(NAME)
    pod_spec.check_identity(ledger, "root")
    if gpus is not None and gpus > 1:
        ledger.add_check(
            f"the old chart ran one rank on each worker, whatever its GPUs; now it runs {gpus}"
        )


def _carry_over_images(ledger: Ledger, head: str) -> None:
    worker = ("worker", "image")
    master = (head, "image")
    parts = ("repository", "tag")
    is_other = any(ledger.value_at(*master, p) != ledger.value_at(*worker, p) for p in parts)
    for part in parts:
        ledger.carry_over((*worker, part), ("image", part))
        if is_other:
            ledger.carry_over((*master, part), ("master", "image", part))
    ledger.carry_over((*worker, "pullPolicy"), ("image", "pullPolicy"), "for master and workers")
    if ledger.value_at(*worker, "pullPolicy") != ledger.value_at(*master, "pullPolicy"):
        ledger.carry_over((*master, "pullPolicy"), ("master", "image", "pullPolicy"))
    for part in (*parts, "pullPolicy"):
        ledger.drop((*master, part), "the same as worker.image")
    image = ledger.values.get("image", {})
    if "repository" not in image and "tag" in image:
        ledger.put(("image", "repository"), DEFAULT_REPOSITORY, worker)
        ledger.add_check(f"image.repository is the old chart's default, {DEFAULT_REPOSITORY}")
    elif "repository" not in image:
        ledger.add_check(
            f"the file names no worker image: the old chart ran {DEFAULT_REPOSITORY}, this one "
            "has no default; set image.repository and image.tag"
        )


def _carry_over_arguments(ledger: Ledger, head: str) -> CommandLine:
    """Carry over the arguments: the old chart joined them with spaces and passed them to bash."""
    variables = carry_over.variables_at(ledger, (head, "env"))
    arguments = [
        carry_over.expand_references(ledger, item, ledger.text_at(*item), variables)
        for item in ledger.items_at(head, "args")
    ]
    if arguments:
        return carry_over.carry_over_command(
            ledger, (head, "args"), ["bash", "-c", " ".join(arguments)]
        )
    ledger.add_check(
        "the file has no training command: the old master waited for ever, this one runs a check "
        "of allreduce. Put the command into master.args"
    )
    return CommandLine("mpirun")


def _carry_over_workers(ledger: Ledger, head: str, line: CommandLine, gpus: int | None) -> None:
    """Carry over the number of workers: `-np` included the old master, which was also a host."""
    path = ("worker", "number")
    number = ledger.integer_at(*path)
    if number is None:
        number = DEFAULT_WORKERS
        ledger.add_check(f"worker.number is the old chart's default, {number}")
    slots = gpus or line.size.per_host or 1
    if gpus is not None:
        ledger.put(("worker", "slots"), gpus, ("resources",))
        ledger.add_part(("resources",), f"{gpus} GPUs", "worker.slots", "one rank for each GPU")
    elif slots > 1:
        ledger.put(("worker", "slots"), slots, (head, "args"))
    reason = ""
    if line.size.ranks is not None and number * slots < line.size.ranks <= (number + 1) * slots:
        number += 1
        reason = f"-np {line.size.ranks}: the old master ran ranks too, this one runs none"
    ledger.put(path, number, path)
    ledger.carry_over(path, path, reason, number)
    carry_over.check_size(ledger, (head, "args"), line, number, slots, path)


def _carry_over_network(ledger: Ledger) -> None:
    path = ("ssh", "port")
    new = ("agent", "port")
    port = ledger.integer_at(*path)
    if port is not None and port < 1024:
        ledger.drop(path, "this chart takes ports from 1024; its default is 2222")
    elif ledger.is_true("useHostNetwork") and any(port in ports for ports in _NODE_PORTS):
        reason = "on the host network this port belongs to Kubernetes; the chart's default is 2222"
        ledger.drop(path, reason)
    else:
        ledger.carry_over(path, new, "", port)
    for key in ("useSecrets", "hostKey", "hostKeyPub"):
        ledger.drop(("ssh", key), "not needed: the chart uses no SSH, and makes its own keys")
    pod_spec.carry_over_host(ledger)


def _carry_over_pods(ledger: Ledger, head: str) -> None:
    ledger.drop(("worker", "podManagementPolicy"), "the workers always start in parallel")
    for key in ("nameOverride", "fullnameOverride", "imagePullSecrets"):
        ledger.carry_over((key,), (key,))
    ledger.carry_over(("annotations",), ("master", "podAnnotations"), "for the master, as before")
    pod_spec.carry_over_capabilities(ledger, ("capabilities",))
    for key in ("nodeSelector", "affinity", "tolerations"):
        reason = "for the workers; the old chart ignored it"
        ledger.carry_over((key,), ("worker", key), reason)
    for part in (head, "worker"):
        ledger.leave_out((part, "privileged"), pod_spec.NOT_PRIVILEGED)
