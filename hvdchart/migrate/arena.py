"""Converts values of Arena's charts mpijob, etjob and tf-horovod (kubeflow/arena).

The keys are the values of its charts' templates and its submit arguments.
"""

from __future__ import annotations

from hvdchart.migrate import launch, pod_spec
from hvdchart.migrate.command_line import CommandLine
from hvdchart.migrate.jobs import carry_over_cleanup
from hvdchart.migrate.ledger import Ledger
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import Plain

NAME = "Arena's chart"
MARKS = (
    ("workers",),
    ("gpuCount",),
    ("envs",),
    ("dataset",),
    ("dataDirs",),
    ("shmSize",),
    ("launcherOnMaster",),
    ("mountsOnLauncher",),
    ("trainingType",),
    ("retry",),
    ("command",),
    ("useTensorboard",),
    ("syncMode",),
    ("enableRDMA",),
    ("nodeSelectors",),
    ("useHostIPC",),
    ("mpiMaster", "jupyter"),
    ("sshPort",),
)
# Keys that become one of this chart as they are.
_SAME = {
    "imagePullPolicy": ("image", "pullPolicy"),
    "launcherResources": ("master", "resources"),
    "tolerations": ("worker", "tolerations"),
    "schedulerName": ("schedulerName",),
    "priorityClassName": ("priorityClassName",),
}
# What to do instead of keys that are left out.
_LEFT_OUT = {
    "podGroupName": "set gang to SchedulerPlugins",
    "privileged": pod_spec.NOT_PRIVILEGED,
    "enableRDMA": "set rdma/hca in worker.resources, worker.capabilities: [IPC_LOCK], and run as "
    "root with podSecurityContext",
    **dict.fromkeys(
        ("gputopology", "devices"),
        "name the devices in worker.resources, in place of nvidia.com/gpu",
    ),
    "configFiles": "make a ConfigMap of them and mount it",
    "mpiMaster": "the chart starts no notebook",
    "syncMode": "put the code into the image, or fetch it with staging.command",
    "useTensorboard": "set tensorboard.enabled, and tensorboard.logDir to a directory on a volume",
    "podSecurityContext": "set podSecurityContext, if the pods had it",
}


def migrate_arena(ledger: Ledger) -> None:
    """Fill in the values and entries of an Arena values file; as `convert.Reader`."""
    if ledger.text_at("image"):
        pod_spec.carry_over_image(ledger, ("image",), ("image",))
    else:
        ledger.drop(("image",), "an empty value sets nothing")
        ledger.add_check("the file names no image: set image.repository and image.tag")
    for key, path in _SAME.items():
        ledger.carry_over((key,), path)
    line = _carry_over_command(ledger)
    won = launch.exported(ledger, ("command",), line, launch.variables_at(ledger, ("envs",)))
    launch.carry_over_variables(ledger, {("envs",): "for all ranks"}, ("worker", "env"), won)
    slots = _carry_over_resources(ledger, line)
    workers = ledger.integer_at("workers")
    if workers is None:
        raise ledger.error((), "the key workers is missing", "the number of workers")
    ledger.carry_over(("workers",), ("worker", "number"), "", workers)
    for key, new in (("minWorkers", "minRanks"), ("maxWorkers", "maxRanks")):
        if (number := ledger.integer_at(key)) is not None:
            limit = ("launch", "elastic", new)
            ledger.carry_over((key,), limit, "ranks, not workers", number * slots)
            ledger.replace(("launch", "mode"), "elastic")
            ledger.add_check(
                "launch.mode is elastic: master.args is the training command alone, and the host "
                "network needs network.interface"
            )
    launch.check_size(ledger, line, workers, slots, ("workers",))
    _carry_over_volumes(ledger)
    _carry_over_pods(ledger)
    for key, what in _LEFT_OUT.items():
        ledger.leave_out((key,), what)
    ledger.drop(("sshPort",), "not needed: the chart uses no SSH; its agents listen on agent.port")
    ledger.close()


def _carry_over_command(ledger: Ledger) -> CommandLine:
    path = ("command",)
    shell = ledger.text_at("shell") or "sh"
    ledger.drop(("shell",), "the command needs a shell only if the report says so")
    if not ledger.text_at(*path):
        ledger.drop(path, "an empty value sets nothing")
        ledger.add_check("the file has no command: put the training command into master.args")
        return CommandLine("mpirun")
    return launch.carry_over_command(ledger, path, [shell, "-c", ledger.text_at(*path)])


def _carry_over_resources(ledger: Ledger, line: CommandLine) -> int:
    amounts: dict[str, Plain] = {}
    for key in ("cpu", "memory"):
        if ledger.text_at(key):
            amounts[key] = ledger.value_at(key)
            ledger.change((key,), ("worker", "resources"), "as request and as limit")
    gpus = ledger.integer_at("gpuCount") or 0
    if gpus:
        amounts["nvidia.com/gpu"] = gpus
        ledger.change(("gpuCount",), ("worker", "resources"), "and as worker.slots")
    ledger.drop(("gpuCount",), "")
    if amounts:
        resources = {"requests": dict(amounts), "limits": dict(amounts)}
        ledger.put(("worker", "resources"), resources, ())
    slots = gpus or line.per_host or 1
    ledger.put(("worker", "slots"), slots, ("gpuCount",))
    return slots


def _carry_over_volumes(ledger: Ledger) -> None:
    volumes = pod_spec.Volumes(ledger)
    for claim in ledger.map_at("dataset"):
        path: KeyPath = ("dataset", claim)
        name = claim.replace(".", "-")
        volume = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        volumes.add_pair(path, volume, {"name": name, "mountPath": ledger.text_at(*path)})
    for path in ledger.items_at("dataDirs"):
        ledger.map_at(*path)
        name = ledger.text_at(*path, "name")
        volume = {"name": name, "hostPath": {"path": ledger.text_at(*path, "hostPath")}}
        mount = {"name": name, "mountPath": ledger.text_at(*path, "containerPath")}
        for key in ledger.map_at(*path):
            if key not in ("name", "hostPath", "containerPath"):
                raise ledger.error((*path, key), "no such key", "name, hostPath, containerPath")
        volumes.add_pair(path, volume, mount)
    volumes.add(("volumes",), ("volumeMounts",))
    volumes.put(())
    ledger.carry_over(("shmSize",), ("shm", "sizeLimit"), "", ledger.text_at("shmSize"))


def _carry_over_pods(ledger: Ledger) -> None:
    pod_spec.carry_over_host(ledger)
    secrets = [{"name": ledger.text_at(*item)} for item in ledger.items_at("imagePullSecrets")]
    if secrets:
        ledger.put(("imagePullSecrets",), secrets, ("imagePullSecrets",))
        ledger.change(("imagePullSecrets",), ("imagePullSecrets",), "one map for each name")
    for key, new, groups in (
        ("nodeSelectors", "nodeSelector", ["worker"]),
        ("labels", "podLabels", ["master", "worker"]),
        ("annotations", "podAnnotations", ["master", "worker"]),
    ):
        texts = {name: ledger.text_at(key, name) for name in ledger.map_at(key)}
        for group in groups:
            ledger.carry_over((key,), (group, new), "", texts)
    for group in ("master", "worker"):
        ledger.carry_over(("workingDir",), (group, "container", "workingDir"))
    retries = ledger.integer_at("retry")
    ledger.carry_over(("retry",), ("master", "backoffLimit"), "", retries)
    carry_over_cleanup(ledger, ("cleanPodPolicy",))
    if "runAsUser" not in ledger.values.get("podSecurityContext", {}):
        ledger.add_check(f"the pods ran as the image's user, often root; {pod_spec.RUN_AS_ROOT}")
