"""Converts values of the chart mpijob-horovod-tensorflow-gpu of AWS's EKS samples.

The chart's template put `pre_script`, `train` and `post_script` into one script for each rank.
"""

from __future__ import annotations

import re

from hvdchart.migrate.command_line import parse_command_line
from hvdchart.migrate.containers import carry_over_one_image
from hvdchart.migrate.environment import Environment, add_variable_list, exported, list_entries
from hvdchart.migrate.launch import carry_over_line, check_ranks
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.pod_spec import RUN_AS_ROOT
from hvdchart.migrate.volumes import Volumes
from hvdchart.spec.yaml_tree import Plain

NAME = "AWS's chart mpijob-horovod-tensorflow-gpu"
MARKS = (
    ("resources", "gpu_nodes"), ("resources", "gpus_per_node"), ("resources", "gpu_instance_type"),
    ("train", "command"), ("mpirun", "args"), ("image_pull_policy",), ("backoff_limit",),
    ("pre_script",),
)  # fmt: skip
_PLAIN_WORD = re.compile(r"[-\w./:=,@%+]+", re.ASCII)
_VARIABLES = {
    ("horovod", "autotune"): ("HOROVOD_AUTOTUNE",),
    ("horovod", "log_level"): ("HOROVOD_LOG_LEVEL",),
    ("nccl", "ifname"): ("NCCL_SOCKET_IFNAME",),
    ("nccl", "debug_level"): ("NCCL_DEBUG",),
    ("tensorflow", "sys_memory_mb"): ("TF_DEVICE_MIN_SYS_MEMORY_IN_MB",),
    ("tensorflow", "autotune_threshold"): ("TF_AUTOTUNE_THRESHOLD",),
    ("tensorflow", "cpp_min_log_level"): ("TF_CPP_MIN_LOG_LEVEL",),
    ("tensorflow", "gpu_allocator"): ("TF_GPU_ALLOCATOR",),
    ("tensorflow", "mixed_precision"): (
        "TF_ENABLE_AUTO_MIXED_PRECISION", "TF_ENABLE_CUBLAS_TENSOR_OP_MATH_FP32",
        "TF_ENABLE_CUDNN_TENSOR_OP_MATH_FP32"),
}  # fmt: skip
_GPU = "nvidia.com/gpu"
_INSTANCE = "node.kubernetes.io/instance-type"


def migrate_aws(ledger: Ledger) -> None:
    """Fill in the values and entries of an AWS values file."""
    carry_over_one_image(ledger, ("image",), ("image_pull_policy",))
    nodes, gpus = (ledger.integer_at("resources", key) for key in ("gpu_nodes", "gpus_per_node"))
    if not nodes or not gpus:
        key = "gpus_per_node" if nodes else "gpu_nodes"
        raise ledger.error(("resources",), f"the key {key} is missing", "nodes, and GPUs on each")
    ledger.carry_over(("resources", "gpu_nodes"), ("worker", "number"), "", nodes)
    ledger.carry_over(
        ("resources", "gpus_per_node"), ("worker", "slots"), "and the GPU limit", gpus
    )
    _carry_over_resources(ledger, gpus)
    command = _training_command(ledger)
    environment = Environment()
    for old, names in _VARIABLES.items():
        if ledger.text_at(*old):
            for name in names:
                environment.add({"name": name, "value": ledger.text_at(*old)})
            ledger.change(old, ("worker", "env"), " and ".join(names))
    options = [ledger.text_at(*item) for item in ledger.items_at("mpirun", "args")]
    line = parse_command_line(["mpirun", *options, *(command or ["true"])])
    if line.mode == "custom":
        expected = "options of Open MPI's mpirun"
        raise ledger.error(("mpirun", "args"), line.custom_reason, expected)
    own = list_entries(ledger, ("mpirun", "env"))
    environment.winning.update(exported(ledger, ("mpirun", "args"), line, own))
    add_variable_list(ledger, ("mpirun", "env"), environment, ("worker", "env"))
    environment.put(ledger, ("worker", "env"), ("mpirun", "env"))
    if options:
        new = ("launch",) if line.options else ("worker",)
        ledger.change(("mpirun", "args"), new, "each part has a line of its own")
    if command:
        carry_over_line(ledger, ("mpirun", "args"), line)
    else:
        if line.options:
            ledger.put(("launch", "options"), line.options, ("mpirun", "args"))
        ledger.add_check("the file has no command: put the training command into master.args")
    check_ranks(ledger, line, nodes, gpus)
    _carry_over_volumes(ledger)
    retries = ledger.integer_at("backoff_limit")
    ledger.carry_over(("backoff_limit",), ("master", "backoffLimit"), "", retries)
    ledger.add_check(f"the pods ran as the image's user, often root; {RUN_AS_ROOT}")
    ledger.close(NAME)


def _carry_over_resources(ledger: Ledger, gpus: int) -> None:
    resources: dict[str, dict[str, Plain]] = {}
    for part in ("requests", "limits"):
        amounts: dict[str, Plain] = {}
        for name in ledger.map_at("resources", part):
            old = ("resources", part, name)
            if name != _GPU and ledger.text_at(*old):
                amounts[name] = ledger.value_at(*old)
                ledger.change(old, ("worker", "resources"), "the old chart ignored it")
            ledger.drop(old, "gpus_per_node sets the GPUs")
        resources[part] = {**amounts, _GPU: gpus}
    ledger.put(("worker", "resources"), resources, ("resources",))
    instance = ("resources", "gpu_instance_type")
    if ledger.text_at(*instance):
        ledger.put(("worker", "nodeSelector"), {_INSTANCE: ledger.text_at(*instance)}, instance)
        ledger.change(instance, ("worker", "nodeSelector"), _INSTANCE)
    toleration = {"key": _GPU, "operator": "Exists", "effect": "NoSchedule"}
    ledger.put(("worker", "tolerations"), [toleration], ("resources",))


def _training_command(ledger: Ledger) -> list[str]:
    """The words of the training command, or a script of bash where there is more than that."""
    parts = {
        path: [ledger.text_at(*item) for item in ledger.items_at(*path)]
        for path in (("pre_script",), ("train", "command"), ("train", "args"), ("post_script",))
    }
    before, command, arguments, after = parts.values()
    for path, lines in parts.items():
        if lines:
            ledger.change(path, ("master", "args"), "each rank runs it, as before")
    if ledger.text_at("git", "repo_url"):
        ledger.add_check(
            f"each rank cloned {ledger.text_at('git', 'repo_url')} and ran in its directory: put "
            "the code into the image, or fetch it with staging.command"
        )
    ledger.drop(("git",), "the chart fetches no code; see staging")
    words = [word for text in (*command, *arguments) for word in text.split()]
    if not before and not after and all(_PLAIN_WORD.fullmatch(word) for word in words):
        return words
    train = [" ".join([*command, *arguments])] if words else []
    return ["bash", "-c", "\n".join([*before, *train, *after])]


def _carry_over_volumes(ledger: Ledger) -> None:
    volumes = Volumes(ledger)
    for path in ledger.items_at("pvc"):
        for key in ledger.map_at(*path):
            if key not in ("name", "mount_path"):
                raise ledger.error((*path, key), "no such key", "name, mount_path")
        claim = ledger.text_at(*path, "name")
        name = f"pv-{path[-1] + 1}" if isinstance(path[-1], int) else claim
        volume = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        mount = {"name": name, "mountPath": ledger.text_at(*path, "mount_path")}
        volumes.add_pair(path, volume, mount)
    ebs = ledger.map_at("ebs")
    if ebs:
        claim_spec = {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "ebs-sc-wait",
            "resources": {"requests": {"storage": ledger.text_at("ebs", "storage") or "100Gi"}},
        }  # fmt: skip
        volume = {"name": "ebs", "ephemeral": {"volumeClaimTemplate": {"spec": claim_spec}}}
        path_text = ledger.text_at("ebs", "mount_path") or "/tmp"  # noqa: S108
        volumes.add_pair(("ebs",), volume, {"name": "ebs", "mountPath": path_text})
    volumes.put(("pvc",))
