"""The volumes of a spec: their sources and mount paths, and those that the chart has itself."""

# ruff: noqa: RUF009 - `key` returns a dataclass field, as dataclasses.field does
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hvdchart.spec.fields import AnyObject, Boolean, ListOf
from hvdchart.spec.objects import ObjectOf, key
from hvdchart.spec.patterns import ABSOLUTE, GROUP_NAME, HOST, OBJECT_NAME, RELATIVE
from hvdchart.spec.yaml_tree import Plain

DEFAULT_MOUNTS = {"data": "/data", "output": "/output"}
VOLUME_SOURCES = {
    "hostPath": "host_path",
    "pvc": "pvc",
    "nfs": "nfs",
    "emptyDir": "empty_dir",
    "configMap": "config_map",
}
# Names of volumes and mount paths that the chart uses itself.
CHARTS_VOLUMES = ("generated", "ssh", "tmp", "shm")
CHARTS_MOUNTS = ("/horovod", "/tmp", "/dev", "/dev/shm", "/etc", "/etc/passwd", "/proc", "/sys")  # noqa: S108


@dataclass(frozen=True)
class Nfs:
    """A directory exported by an NFS server."""

    server: str = key(HOST, "name or address of the NFS server")
    path: str = key(ABSOLUTE, "exported directory")


@dataclass(frozen=True)
class Volume:
    """A volume of the master and the workers: exactly one source, and where it is mounted."""

    host_path: str | None = key(ABSOLUTE, "directory on the node", None)
    pvc: str | None = key(OBJECT_NAME, "name of a PersistentVolumeClaim", None)
    nfs: Nfs | None = key(ObjectOf(Nfs), "directory on an NFS server", None)
    empty_dir: Mapping[str, Plain] | None = key(
        AnyObject(),
        "empty directory that is deleted with its pod; {}, or the keys of a Kubernetes emptyDir",
        None,
    )
    config_map: str | None = key(OBJECT_NAME, "name of a ConfigMap", None)
    mount_path: str | None = key(
        ABSOLUTE, "mount path (default for data and output: /data and /output)", None
    )
    sub_path: str | None = key(
        RELATIVE, "directory within the volume that is mounted (default: its root)", None
    )
    read_only: bool = key(Boolean(), "mount the volume read-only", False)
    groups: tuple[str, ...] = key(
        ListOf(GROUP_NAME, longest=100),
        "node groups that mount it (default: all groups, and the master)", (),
    )  # fmt: skip

    @property
    def sources(self) -> list[str]:
        """The keys of the sources that are given; a valid volume has one."""
        return [key for key, field in VOLUME_SOURCES.items() if getattr(self, field) is not None]


def mount_path(name: str, volume: Volume) -> str:
    """The mount path of a volume in the pods."""
    chosen = volume.mount_path or DEFAULT_MOUNTS.get(name, f"/{name}")
    return chosen.rstrip("/") or "/"
