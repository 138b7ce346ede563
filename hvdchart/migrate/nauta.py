"""Converts values of Nauta's pack tf-training-horovod (IntelAI/nauta-zoo), as its CLI renders them.

The launcher's line was in the pack's template: mpiexec with cores for each rank, mapped by socket.
"""

from __future__ import annotations

import re

from hvdchart.migrate.containers import carry_over_one_image
from hvdchart.migrate.environment import Environment, add_variable_list, list_entries
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.pod_spec import NOT_PRIVILEGED, RUN_AS_ROOT, carry_over_host
from hvdchart.migrate.volumes import Volumes
from hvdchart.spec.yaml_tree import Plain

NAME = "Nauta's pack tf-training-horovod"
MARKS = (
    ("workersCount",), ("processesPerNode",), ("image", "clusterRepository"), ("registryPort",),
    ("commandline", "args"), ("experimentName",), ("hostNetworkInterface",), ("podCount",),
)  # fmt: skip
_PLAIN_WORD = re.compile(r"[-\w./:=,@%+]+", re.ASCII)
# What the pack's template gave mpiexec beside the mapping and what the chart sets itself.
_OPTIONS = ["--oversubscribe", "--display-map", "--tag-output", "--timestamp-output"]
_UNUSED = {
    "podCount": "the number of pods follows from worker.number",
    "runKind": "a label of Nauta", "registryPort": "a part of the image's name in Nauta",
    "cpu_fraction": "Nauta's CLI computed resources with it",
    "memory_fraction": "Nauta's CLI computed resources with it",
}  # fmt: skip


def migrate_nauta(ledger: Ledger) -> str:
    """Fill in the values and entries of a Nauta values file; returns the experiment's name."""
    carry_over_one_image(ledger, ("image", "clusterRepository"), ("image", "pullPolicy"))
    _carry_over_command(ledger)
    won = Environment()
    add_variable_list(ledger, ("master", "env"), won, ("worker", "env"))
    environment = Environment(won.entries)
    list_entries(ledger, ("worker", "env"))
    add_variable_list(ledger, ("worker", "env"), environment, ("worker", "env"))
    environment.put(ledger, ("worker", "env"), ("worker", "env"))
    _carry_over_size(ledger)
    _carry_over_network(ledger)
    name = ledger.text_at("experimentName")
    if name:
        ledger.change(("experimentName",), ("helm install NAME",), "the name of the release")
    _carry_over_volumes(ledger, name)
    for key, reason in _UNUSED.items():
        ledger.drop((key,), reason)
    ledger.drop(("worker", "podManagementPolicy"), "the workers always start in parallel")
    for part in ("master", "worker"):
        privileged = ledger.is_true(part, "privileged")
        reason = NOT_PRIVILEGED if privileged else "false is the default"
        ledger.drop((part, "privileged"), reason)
    ledger.add_check(f"the pods ran as root; {RUN_AS_ROOT}")
    ledger.close(NAME)
    return name


def _carry_over_command(ledger: Ledger) -> None:
    path = ("commandline", "args")
    words = [ledger.text_at(*item) for item in ledger.items_at(*path)]
    if not words:
        ledger.add_check("the file has no command: put the training command into master.args")
        return
    # The template put the words unquoted into `sh -c 'python ...'`.
    parts = [part for word in words for part in word.split()]
    if all(_PLAIN_WORD.fullmatch(part) for part in parts):
        ledger.put(("master", "args"), ["python", *parts], path)
        ledger.change(path, ("master", "args"), "after python, as the pack's template started it")
    else:
        command = ["sh", "-c", " ".join(["python", *words])]
        ledger.put(("master", "args"), command, path)
        ledger.change(path, ("master", "args"), "as text for a shell, as before")
    if ledger.value_at("master", "args"):
        ledger.drop(("master", "args"), "the pack's script ignored words after its own command")


def _carry_over_size(ledger: Ledger) -> None:
    workers = ledger.integer_at("workersCount")
    if workers is None:
        raise ledger.error((), "the key workersCount is missing", "the number of workers")
    slots = ledger.integer_at("processesPerNode")
    slots = 1 if slots is None else slots
    reason = "one more worker, because the master ran ranks too"
    ledger.carry_over(("workersCount",), ("worker", "number"), reason, workers + 1)
    ledger.carry_over(("processesPerNode",), ("worker", "slots"), "", slots)
    ledger.put(("worker", "slots"), slots, ("processesPerNode",))
    cores = ledger.integer_at("cpus")
    options = list(_OPTIONS)
    if cores:
        options = ["--map-by", f"socket:PE={cores}", "--bind-to", "core", *options]
        reason = "cores of each rank, mapped by socket, as in the pack's template"
        ledger.change(("cpus",), ("launch", "options"), reason)
    ledger.put(("launch", "options"), options, ("cpus",))
    amounts: dict[str, dict[str, Plain]] = {"requests": {}, "limits": {}}
    for key in ("cpu", "memory"):
        shorthand = ledger.text_at(key)
        for part, values in amounts.items():
            old = ("resources", part, key)
            if shorthand:
                values[key] = ledger.value_at(key)
                ledger.drop(old, f"the key {key} wins, as in the pack")
            elif ledger.text_at(*old):
                values[key] = ledger.value_at(*old)
                ledger.change(old, ("worker", "resources"), "for the workers")
        if shorthand:
            ledger.change((key,), ("worker", "resources"), "as request and as limit")
    resources = {part: values for part, values in amounts.items() if values}
    if resources:
        ledger.put(("worker", "resources"), resources, ("resources",))


def _carry_over_network(ledger: Ledger) -> None:
    interface = ledger.text_at("hostNetworkInterface")
    carry_over_host(ledger)
    if interface and ledger.values.get("hostNetwork"):
        ledger.carry_over(("hostNetworkInterface",), ("network", "interface"))
    ledger.drop(("hostNetworkInterface",), "it counts only on the host network")
    ledger.drop(("ssh", "port"), "the pack's port for its own pods; the chart's default is 2222")
    ledger.drop(("ssh", "useSecrets"), "the chart makes the SSH keys")


def _carry_over_volumes(ledger: Ledger, name: str) -> None:
    volumes = Volumes(ledger)
    volumes.add(("volumes",), ("volumeMounts",))
    if "output-home" in volumes.volumes and name:
        # The pack's template mounted each experiment's own directory.
        mount = {"name": "output-home", "mountPath": "/mnt/output/experiment", "subPath": name}
        volumes.mounts.setdefault("/mnt/output/experiment", mount)
        reason = "the directory of this experiment in output-home, as in the template"
        ledger.add_part(("volumeMounts",), "/mnt/output/experiment", "volumeMounts", reason)
    volumes.put(("volumes",))
