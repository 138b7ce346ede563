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
    ("workers",), ("gpuCount",), ("envs",), ("dataset",), ("dataDirs",), ("shmSize",),
    ("launcherOnMaster",), ("mountsOnLauncher",), ("trainingType",), ("retry",), ("command",),
    ("useTensorboard",), ("syncMode",), ("enableRDMA",), ("nodeSelectors",), ("useHostIPC",),
    ("mpiMaster", "jupyter"), ("sshPort",),
)  # fmt: skip
_ALL_PODS = "for master and workers"
# Options of Arena and Alibaba Cloud, and what this chart decides itself.
_UNUSED = (
    "trainingType", "mode", "launcherOnMaster", "mountsOnLauncher", "useHostIPC", "useENI",
    "ingress", "nvidiaPath", "gputopologyreplica", "sshPort", "podManagementPolicy", "jobmon",
    "workerRestartPolicy", "maxWaitTime", "enableSpotInstance", "modelName", "modelSource",
    "tensorboardImagePullpolicy", "tensorboardServiceType", "enableQueue", "rsyncImage", "gitImage",
    "podGroupMinAvailable",
)  # fmt: skip


def migrate_arena(ledger: Ledger) -> tuple[str, str]:
    """Fill in the values and entries of an Arena values file; as `convert.Reader`."""
    if ledger.text_at("image"):
        pod_spec.carry_over_image(ledger, ("image",), ("image",))
    else:
        ledger.drop(("image",), "an empty value sets nothing")
        ledger.add_check("the file names no image: set image.repository and image.tag")
    ledger.carry_over(("imagePullPolicy",), ("image", "pullPolicy"))
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
            path = ("launch", "elastic", new)
            ledger.carry_over((key,), path, "ranks, not workers", number * slots)
            ledger.replace(("launch", "mode"), "elastic")
            ledger.add_check("launch.mode is elastic: master.args is the training command alone")
    launch.check_size(ledger, line, workers, slots, ("workers",))
    _carry_over_volumes(ledger)
    _carry_over_pods(ledger)
    _carry_over_run(ledger)
    unused = [key for key in _UNUSED if ledger.value_at(key) not in (None, False, "", {}, [])]
    if unused:
        ledger.add_check(f"these keys of Arena are not carried over: {', '.join(unused)}")
    for key in _UNUSED:
        ledger.drop((key,), "not carried over")
    ledger.close(NAME)
    return "", ""


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
        topology = ledger.is_true("gputopology")
        amounts["aliyun.com/gpu" if topology else "nvidia.com/gpu"] = gpus
        ledger.change(("gpuCount",), ("worker", "resources"), "and as worker.slots")
    ledger.drop(("gpuCount",), "0 is the default")
    ledger.drop(("gputopology",), "it names the resource of the GPUs")
    for name in ledger.map_at("devices"):
        amounts[name] = ledger.value_at("devices", name)
        ledger.change(("devices", name), ("worker", "resources"), "as request and as limit")
    if ledger.is_true("enableRDMA"):
        amounts["rdma/hca"] = 1
        ledger.put(("worker", "capabilities"), ["IPC_LOCK"], ("enableRDMA",))
        for key, value in {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}.items():
            ledger.put(("podSecurityContext", key), value, ("enableRDMA",))
        ledger.change(("enableRDMA",), ("worker", "resources"), "rdma/hca, and worker.capabilities")
        ledger.add_check("for worker.capabilities the pods run as root, as before")
    ledger.drop(("enableRDMA",), "false is the default")
    if amounts:
        resources = {"requests": dict(amounts), "limits": dict(amounts)}
        ledger.put(("worker", "resources"), resources, ())
    slots = gpus or line.per_host or 1
    ledger.put(("worker", "slots"), slots, ("gpuCount",))
    ledger.carry_over(("launcherResources",), ("master", "resources"))
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
    if ledger.is_true("useTensorboard"):
        _carry_over_tensorboard(ledger, volumes)
    for key in ("useTensorboard", "tensorboardImage", "tensorboardResources", "hostLogPath",
                "trainingLogdir", "isLocalLogging", "tensorboard"):  # fmt: skip
        ledger.drop((key,), "TensorBoard was not enabled; this chart has tensorboard")
    volumes.add(("volumes",), ("volumeMounts",))
    volumes.put(())
    ledger.carry_over(("shmSize",), ("shm", "sizeLimit"), "", ledger.text_at("shmSize"))


def _carry_over_tensorboard(ledger: Ledger, volumes: pod_spec.Volumes) -> None:
    path, directory = ledger.text_at("hostLogPath"), ledger.text_at("trainingLogdir")
    if ledger.is_true("isLocalLogging") and path and directory:
        volume = {"name": "training-logs", "hostPath": {"path": path}}
        mount = {"name": "training-logs", "mountPath": directory}
        volumes.add_pair(("hostLogPath",), volume, mount)
        ledger.put(("tensorboard",), {"enabled": True, "logDir": directory}, ("trainingLogdir",))
        for key in ("useTensorboard", "trainingLogdir", "isLocalLogging"):
            ledger.change((key,), ("tensorboard",), "the logs are on a volume")
        reason = "the chart's TensorBoard uses the image of the workers; see tensorboard.image"
        ledger.drop(("tensorboardImage",), reason)
        ledger.carry_over(("tensorboardResources",), ("tensorboard", "resources"))
    else:
        ledger.add_check(
            "useTensorboard is true: set tensorboard.enabled, and tensorboard.logDir to a "
            "directory on a volume"
        )


def _carry_over_pods(ledger: Ledger) -> None:
    pod_spec.carry_over_host(ledger)
    selectors = ledger.map_at("nodeSelectors")
    texts = {key: ledger.text_at("nodeSelectors", key) for key in selectors}
    ledger.carry_over(("nodeSelectors",), ("worker", "nodeSelector"), "", texts)
    ledger.carry_over(("tolerations",), ("worker", "tolerations"))
    ledger.carry_over(("schedulerName",), ("schedulerName",), _ALL_PODS)
    ledger.carry_over(("priorityClassName",), ("priorityClassName",), _ALL_PODS)
    secrets = [{"name": ledger.text_at(*item)} for item in ledger.items_at("imagePullSecrets")]
    if secrets:
        ledger.put(("imagePullSecrets",), secrets, ("imagePullSecrets",))
        ledger.change(("imagePullSecrets",), ("imagePullSecrets",), "one map for each name")
    for key, new in (("labels", "podLabels"), ("annotations", "podAnnotations")):
        texts = {name: ledger.text_at(key, name) for name in ledger.map_at(key)}
        if texts:
            ledger.put(("master", new), texts, (key,))
            ledger.carry_over((key,), ("worker", new), _ALL_PODS, texts)
    if ledger.text_at("podGroupName"):
        ledger.drop(("podGroupName",), "the chart makes the PodGroup when gang is set")
        ledger.add_check("podGroupName asked for gang scheduling: set gang to SchedulerPlugins")
    ledger.drop(("podGroupName",), "an empty value sets nothing")
    pod_spec.drop_privileged(ledger, ("privileged",))
    if ledger.is_true("enablePodSecurityContext") and ledger.is_true("isNonRoot"):
        ledger.carry_over(("podSecurityContext",), ("podSecurityContext",))
    ledger.drop(("podSecurityContext",), "it was not enabled")
    for key in ("enablePodSecurityContext", "isNonRoot"):
        ledger.drop((key,), "it says whether podSecurityContext counts")
    if "runAsUser" not in ledger.values.get("podSecurityContext", {}):
        ledger.add_check(f"the pods ran as the image's user, often root; {pod_spec.RUN_AS_ROOT}")


def _carry_over_run(ledger: Ledger) -> None:
    retries = ledger.integer_at("retry")
    ledger.carry_over(("retry",), ("master", "backoffLimit"), "", retries)
    carry_over_cleanup(ledger, ("cleanPodPolicy",))
    if ledger.text_at("syncMode"):
        source = ledger.text_at("syncSource")
        ledger.add_check(
            f"syncMode fetched {source or 'the code'} before each start: put it into the image, or "
            "fetch it with staging.command"
        )
    for key in ("syncMode", "syncSource", "syncImage", "syncGitProjectName"):
        ledger.drop((key,), "the chart fetches no code; see staging")
    for group in ("master", "worker"):
        ledger.carry_over(("workingDir",), (group, "container", "workingDir"))
    if ledger.map_at("configFiles"):
        ledger.add_check("configFiles is dropped: make a ConfigMap of them and mount it")
    ledger.drop(("configFiles",), "Arena made a ConfigMap of files on the user's machine")
    if ledger.is_true("mpiMaster", "jupyter", "enabled"):
        ledger.add_check("mpiMaster.jupyter is dropped: the chart starts no notebook")
    ledger.drop(("mpiMaster",), "the chart starts no notebook")
