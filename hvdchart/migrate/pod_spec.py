"""Carry over fields of pods: images, resources, volumes, scheduling, identity, security. Pure."""

from __future__ import annotations

from collections.abc import Collection

from hvdchart.chart_files import is_charts_volume, is_gpu
from hvdchart.migrate.ledger import Ledger, NewPath
from hvdchart.spec.model import is_charts_mount
from hvdchart.spec.paths import KeyPath, child_at
from hvdchart.spec.yaml_tree import Plain
from hvdchart.text import split_image
from hvdchart.values.merge import without_nulls

_SHM = "/dev/shm"  # noqa: S108  a mount path to recognize, no file of this process
# Fields that master and workers set separately, and those that all pods share.
_OF_EACH = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "terminationGracePeriodSeconds",
)
# Fields for which the chart has no values.
_OF_POD_SPEC = (
    "topologySpreadConstraints",
    "runtimeClassName",
    "resourceClaims",
    "hostPID",
    "dnsConfig",
    "hostAliases",
)
_PULL_SECRETS = "imagePullSecrets"
_OF_ALL = (
    "priorityClassName",
    "schedulerName",
    "hostNetwork",
    _PULL_SECRETS,
)
# Fields of a container's security context that the chart sets for the pod.
_IDENTITY = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile")
NOT_PRIVILEGED = (
    "request devices with resources, and RDMA with the capability IPC_LOCK. For "
    "privileged pods set securityContext: {privileged: true, allowPrivilegeEscalation: true}"
)
_WRITES = (
    "for a program that writes into the image set securityContext: {readOnlyRootFilesystem: false}"
)
RUN_AS_ROOT = (
    "here they run as user 1000 on a read-only root file system. For an image that needs root set "
    "podSecurityContext: {runAsUser: 0, runAsGroup: 0, fsGroup: 0, runAsNonRoot: false}; "
    f"{_WRITES}"
)


def carry_over_host(ledger: Ledger) -> None:
    """Carry over the node's namespaces that all pods use, as charts for Helm specify them."""
    for key, new in (
        ("useHostNetwork", ("hostNetwork",)),
        ("useHostPID", ("worker", "podSpec", "hostPID")),
    ):
        if ledger.is_true(key):
            ledger.carry_over((key,), new, "", True)
            ledger.add_check(f"the Pod Security levels baseline and restricted reject {new[-1]}")
        else:
            ledger.drop((key,), "the chart's default")


def carry_over_pod(ledger: Ledger, pod: KeyPath, group: str) -> None:
    """Carry over a pod's fields outside of its containers; `group` is worker or master.

    Call it for the workers first: they decide the values that all pods share.
    """
    for key in _OF_EACH:
        ledger.carry_over((*pod, key), (group, key))
    for key in _OF_POD_SPEC:
        if ledger.value_at(*pod, key):
            ledger.carry_over((*pod, key), (group, "podSpec", key))
        else:
            ledger.drop((*pod, key), "")
    for key in _OF_ALL:
        value = ledger.value_at(*pod, key)
        # The master's image may need a pull secret that the workers' image does not need.
        is_for_all = group == "worker" or (key == _PULL_SECRETS and key not in ledger.values)
        if not value or without_nulls(value) == ledger.values.get(key):
            ledger.drop((*pod, key), "the chart has one value for all pods, which is already set")
        elif is_for_all:
            ledger.carry_over((*pod, key), (key,), "for master and workers")
        else:
            ledger.leave_out((*pod, key), "all pods have one value, which is that of the workers")
    what = f"its pods shared the node's {_SHM}: set shm.sizeLimit to what the ranks need"
    ledger.leave_out((*pod, "hostIPC"), what)
    # The API server sets both fields to the same name; serviceAccountName takes precedence.
    account = "serviceAccountName" if ledger.has((*pod, "serviceAccountName")) else "serviceAccount"
    if group == "master":
        what = "the chart makes one that may do what the master needs; see serviceAccount"
        ledger.leave_out((*pod, account), what)
    elif name := ledger.text_at(*pod, account):
        ledger.carry_over((*pod, account), ("worker", "podSpec", "serviceAccountName"))
        ledger.add_check(
            f"the workers have the service account {name}, which has to exist, without a "
            "token: see automountServiceAccountToken of worker.podSpec"
        )
    ledger.drop((*pod, "serviceAccount"), "serviceAccountName counts")
    ledger.drop((*pod, "restartPolicy"), "the chart's StatefulSet and Job set it")


def carry_over_capabilities(ledger: Ledger, old: KeyPath) -> None:
    """Carry over added capabilities to worker.capabilities, for the pods that run the ranks.

    Linux gives added capabilities to root's processes only. So the pods run as root unless the
    input sets another user. Carry over the user before.
    """
    ledger.drop((*old, "drop"), "the chart drops all capabilities that it does not add")
    names = [ledger.text_at(*item).removeprefix("CAP_") for item in ledger.items_at(*old, "add")]
    context: dict[str, Plain] = ledger.values.get("podSecurityContext", {})
    if not names or context.get("runAsUser", 0) != 0:
        reason = "Linux gives added capabilities to root only, and the pods run as another user"
        ledger.drop((*old, "add"), reason)
        return
    ledger.carry_over((*old, "add"), ("worker", "capabilities"), "for the workers", names)
    for key, value in {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}.items():
        ledger.put(("podSecurityContext", key), value, old)
    ledger.add_check(
        "for worker.capabilities the pods run as root, as before. The Pod Security level "
        "restricted rejects root, and baseline rejects capabilities such as IPC_LOCK"
    )


def carry_over_security(ledger: Ledger, pod: KeyPath, container: KeyPath) -> None:
    """Carry over the workers' security contexts to those of the chart, which apply to all pods."""
    ledger.carry_over((*pod, "securityContext"), ("podSecurityContext",))
    old = (*container, "securityContext")
    for key in ledger.map_at(*old):
        path = (*old, key)
        if key == "privileged":
            ledger.leave_out(path, NOT_PRIVILEGED)
        elif key in _IDENTITY:
            ledger.carry_over(path, ("podSecurityContext", key), "set for the pod")
        elif key != "capabilities":
            ledger.carry_over(path, ("securityContext", key))
    carry_over_capabilities(ledger, (*old, "capabilities"))
    context: dict[str, Plain] = ledger.values.get("podSecurityContext", {})
    if context.get("runAsUser") == 0:
        ledger.put(("podSecurityContext", "runAsNonRoot"), False, old)
    check_identity(ledger, "the image's user, often root")


def check_identity(ledger: Ledger, user: str) -> None:
    """Add a check if the chart restricts pods more than the input, whose pods ran as `user`."""
    if "runAsUser" not in ledger.values.get("podSecurityContext", {}):
        ledger.add_check(f"the pods ran as {user}; {RUN_AS_ROOT}")
    elif "readOnlyRootFilesystem" not in ledger.values.get("securityContext", {}):
        ledger.add_check(f"the root file system is read-only here: {_WRITES}")


def carry_over_image(ledger: Ledger, old: KeyPath, new: NewPath) -> None:
    """Convert an image reference to the chart's repository, tag and digest at `new`."""
    parts = split_image(ledger.text_at(*old))
    if "repository" not in parts:
        raise ledger.type_error(old, "the name of an image")
    for key, value in parts.items():
        ledger.put((*new, key), value, old)
    ledger.change(old, new, f"split into {' and '.join(parts)}")


def carry_over_resources(ledger: Ledger, old: KeyPath) -> int | None:
    """Convert the workers' resources; return their number of GPUs, None without any."""
    ledger.carry_over(old, ("worker", "resources"))
    resources = ledger.value_at(*old)
    for part in ("limits", "requests"):
        amounts = child_at(resources, part)
        for name, count in amounts.items() if isinstance(amounts, dict) else ():
            if is_gpu(name) and str(count).isdecimal() and 0 < int(count) < 10**6:
                return int(count)
    return None


class Volumes:
    """The volumes and mounts of master and workers, which the chart adds to both.

    `own` are the names of volumes that only the workers have, such as huge pages and devices. They
    go to the workers' group, because a master on another node may be unable to mount them.
    """

    def __init__(self, ledger: Ledger, own: Collection[str] = ()) -> None:
        self.ledger = ledger
        self.own = own
        # By name and by path, as in the file.
        self.volumes: dict[str, Plain] = {}
        self.mounts: dict[str, Plain] = {}
        self._mount_places: dict[str, KeyPath] = {}

    def add(self, volumes: KeyPath, mounts: KeyPath) -> None:
        """Add the lists of volumes and of mounts at two paths of the input, the workers' first."""
        ledger = self.ledger
        at_shm = {
            ledger.text_at(*path, "name")
            for path in ledger.items_at(*mounts)
            if ledger.text_at(*path, "mountPath").rstrip("/") == _SHM
        }
        for path in ledger.items_at(*volumes):
            name = ledger.text_at(*path, "name")
            entry = ledger.map_at(*path)
            if name in at_shm:
                size = ("emptyDir", "sizeLimit")
                if "shm" in ledger.values:
                    ledger.drop((*path, *size), "all pods have the limit of the workers")
                elif text := ledger.text_at(*path, *size):
                    ledger.carry_over((*path, *size), ("shm", "sizeLimit"), "", text)
                else:
                    ledger.add_check(
                        f"{_SHM} had no limit: here it has the default of shm.sizeLimit, which is "
                        "part of the memory limit; set it to what the ranks need"
                    )
                ledger.drop(path, f"the chart mounts {_SHM} itself; its size is shm.sizeLimit")
            elif not name:
                raise ledger.error(path, "a volume without a name", "a name")
            elif self.volumes.setdefault(name, entry) != entry:
                ledger.drop(path, f"another volume is already called {name}")
                ledger.add_check(f"volume {name} is defined twice: here it is the first definition")
            else:
                self._change(path, name, "volumes")
        for path in ledger.items_at(*mounts):
            self._add_mount(path)

    def _add_mount(self, path: KeyPath) -> None:
        ledger = self.ledger
        entry = self.ledger.map_at(*path)
        given = ledger.text_at(*path, "mountPath")
        # Refuse a name that is not text.
        name = ledger.text_at(*path, "name")
        if not given.startswith("/"):
            raise ledger.error(path, f"the mount path is {given!r}", "an absolute path")
        mount_path = given.rstrip("/") or "/"
        if is_charts_mount(mount_path):
            ledger.drop(path, f"{mount_path} belongs to the system or to the chart")
            if mount_path != _SHM:
                ledger.add_check(f"the mount at {mount_path} is dropped: each pod has its own")
        elif self.mounts.setdefault(mount_path, entry) != entry:
            ledger.drop(path, f"another volume is already mounted at {mount_path}")
            ledger.add_check(f"two volumes are mounted at {mount_path}: here it is the first")
        else:
            self._mount_places[mount_path] = path
            self._change(path, name, "volumeMounts")

    def _change(self, path: KeyPath, name: str, key: str) -> None:
        """Record the new place of the volume or mount at a path."""
        if name in self.own:
            self.ledger.change(path, ("workerGroups", key), "for the workers alone, as before")
        else:
            self.ledger.change(path, (key,), "for master and workers")

    def put(self, old: KeyPath) -> None:
        """Put all of them into the chart's values."""
        for path, mount in self.mounts.items():
            if mount.get("name") not in self.volumes:
                problem = f"no volume is called {mount.get('name')}"
                expected = f"one of {', '.join(self.volumes) or 'volumes, which has none'}"
                raise self.ledger.error(self._mount_places[path], problem, expected)
        for name in self.volumes:
            if is_charts_volume(name):
                problem = f"the chart has a volume {name} of its own"
                raise self.ledger.error(old, problem, "a volume with another name")
        group: dict[str, Plain] = {}
        for key, entries in (("volumes", self.volumes), ("volumeMounts", self.mounts)):
            shared = []
            for entry in map(without_nulls, entries.values()):
                if entry["name"] in self.own:
                    group.setdefault(key, []).append(entry)
                else:
                    shared.append(entry)
            if shared:
                self.ledger.put((key,), shared, old)
        if group:
            # With this name, the workers have the same names as without groups.
            self.ledger.put(("workerGroups",), [{"name": "worker", **group}], old)
