"""Carry over parts of pods: images, resources, volumes, capabilities, the user. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hvdchart.chart_files import is_charts_volume, is_gpu, is_reserved_path
from hvdchart.migrate.ledger import Ledger, NewPath
from hvdchart.spec.paths import KeyPath, child_at
from hvdchart.spec.yaml_tree import Plain
from hvdchart.text import split_image
from hvdchart.values.merge import drop_nulls

_SHM = "/dev/shm"  # noqa: S108  a mount path to recognize, no file of this process
_WRITES = (
    "for a program that writes into the image set securityContext: {readOnlyRootFilesystem: false}"
)
RUN_AS_ROOT = (
    "here they run as user 1000 on a read-only root file system. For an image that needs root set "
    "podSecurityContext: {runAsUser: 0, runAsGroup: 0, fsGroup: 0, runAsNonRoot: false}; "
    f"{_WRITES}"
)


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


def carry_over_capabilities(ledger: Ledger, capabilities: KeyPath) -> None:
    """Carry over added capabilities to worker.capabilities, for the pods that run the ranks.

    Linux gives added capabilities to root's processes only. So the pods run as root unless the
    input sets another user. Carry over the security contexts before.
    """
    ledger.drop((*capabilities, "drop"), "the chart drops all capabilities that it does not add")
    added = (*capabilities, "add")
    names = [ledger.text_at(*path).removeprefix("CAP_") for path in ledger.items_at(*added)]
    context: dict[str, Plain] = ledger.values.get("podSecurityContext", {})
    if context.get("runAsUser", 0) != 0:
        reason = "Linux gives added capabilities to root only, and the pods run as another user"
        ledger.drop(added, reason)
    elif names:
        ledger.carry_over(added, ("worker", "capabilities"), "for the workers", names)
        for key in ("runAsUser", "runAsGroup"):
            ledger.put(("podSecurityContext", key), 0, added)
        ledger.add_check(
            "for worker.capabilities the pods run as root, as before. The Pod Security level "
            "restricted rejects root, and baseline rejects capabilities such as IPC_LOCK"
        )
    if ledger.values.get("podSecurityContext", {}).get("runAsUser") == 0:
        ledger.put(("podSecurityContext", "runAsNonRoot"), False, capabilities)


def check_user(ledger: Ledger, user: str) -> None:
    """Add a check if the chart restricts pods more than the input, whose pods ran as `user`."""
    if "runAsUser" not in ledger.values.get("podSecurityContext", {}):
        ledger.add_check(f"the pods ran as {user}; {RUN_AS_ROOT}")
    elif "readOnlyRootFilesystem" not in ledger.values.get("securityContext", {}):
        ledger.add_check(f"the root file system is read-only here: {_WRITES}")


def carry_over_volumes(
    ledger: Ledger, places: Sequence[tuple[KeyPath, KeyPath]], workers_only: Collection[str] = ()
) -> None:
    """Carry over lists of volumes and of mounts, the workers' first.

    The chart adds volumes to master and workers. `workers_only` are the names of volumes that only
    the workers have, such as huge pages and devices. They go to the workers' group, because a
    master on another node may be unable to mount them.
    """
    volumes: dict[str, Plain] = {}
    mounts: dict[str, Plain] = {}
    for volumes_at, mounts_at in places:
        mount_paths = {
            path: ledger.text_at(*path, "mountPath").rstrip("/") or "/"
            for path in ledger.items_at(*mounts_at)
        }
        at_shm = {ledger.text_at(*path, "name") for path, at in mount_paths.items() if at == _SHM}
        for path in ledger.items_at(*volumes_at):
            name = ledger.text_at(*path, "name")
            if name in at_shm:
                _carry_over_shm(ledger, path)
            else:
                _require_own_name(ledger, path, name)
                _add(ledger, volumes, name, path, name in workers_only, "volumes")
        for path, mount_path in mount_paths.items():
            if mount_path == _SHM or is_reserved_path(mount_path):
                _drop_mount(ledger, path, mount_path)
            else:
                name = _find_mounted(ledger, path, volumes)
                _add(ledger, mounts, mount_path, path, name in workers_only, "volumeMounts")
    _put_volumes(ledger, {"volumes": volumes, "volumeMounts": mounts}, workers_only, places[0][0])


def _put_volumes(
    ledger: Ledger,
    lists: Mapping[str, Mapping[str, Plain]],
    workers_only: Collection[str],
    old: KeyPath,
) -> None:
    """Put the entries of the two lists into the values, those of the workers into their group."""
    group: dict[str, Plain] = {}
    for key, entries in lists.items():
        plain = list(map(drop_nulls, entries.values()))
        if shared := [entry for entry in plain if entry["name"] not in workers_only]:
            ledger.put((key,), shared, old)
        if alone := [entry for entry in plain if entry["name"] in workers_only]:
            group[key] = alone
    if group:
        # With this name, the workers have the same names as without groups.
        ledger.put(("workerGroups",), [{"name": "worker", **group}], old)


def _require_own_name(ledger: Ledger, path: KeyPath, name: str) -> None:
    """Raise SpecError for a volume without a name, or with that of a volume of the chart."""
    if not name or is_charts_volume(name):
        problem = f"the chart has a volume {name} of its own" if name else "a volume without a name"
        raise ledger.error(path, problem, "a volume with another name")


def _drop_mount(ledger: Ledger, path: KeyPath, mount_path: str) -> None:
    ledger.drop(path, f"{mount_path} belongs to the system or to the chart")
    if mount_path != _SHM:
        ledger.add_check(f"the mount at {mount_path} is dropped: each pod has its own")


def _find_mounted(ledger: Ledger, path: KeyPath, volumes: Collection[str]) -> str:
    """Return which of the volumes a mount mounts. Raises SpecError for a mount that cannot be."""
    name = ledger.text_at(*path, "name")
    mount_path = ledger.text_at(*path, "mountPath")
    if not mount_path.startswith("/"):
        raise ledger.error(path, f"the mount path is {mount_path!r}", "an absolute path")
    if name not in volumes:
        expected = f"one of {', '.join(volumes) or 'volumes, which has none'}"
        raise ledger.error(path, f"no volume is called {name}", expected)
    return name


def _carry_over_shm(ledger: Ledger, path: KeyPath) -> None:
    """Convert a volume for shared memory, of which all pods have the workers' limit."""
    limit = (*path, "emptyDir", "sizeLimit")
    if "shm" not in ledger.values and (text := ledger.text_at(*limit)):
        ledger.carry_over(limit, ("shm", "sizeLimit"), "", text)
    elif "shm" not in ledger.values:
        ledger.add_check(
            f"{_SHM} had no limit: here it has the default of shm.sizeLimit, which is "
            "part of the memory limit; set it to what the ranks need"
        )
    ledger.drop(path, f"the chart mounts {_SHM} itself; its size is shm.sizeLimit")


def _add(
    ledger: Ledger,
    entries: dict[str, Plain],
    key: str,
    path: KeyPath,
    is_workers_only: bool,
    new: str,
) -> None:
    """Add a volume or mount to those by `key`. Raises SpecError for two that differ."""
    entry = ledger.map_at(*path)
    if entries.setdefault(key, entry) != entry:
        problem = f"{key} is also another one of the {new} of the pods"
        raise ledger.error(path, problem, "the same in all pods, or another name and path")
    if is_workers_only:
        ledger.change(path, ("workerGroups", new), "for the workers alone, as before")
    else:
        ledger.change(path, (new,), "for master and workers")
