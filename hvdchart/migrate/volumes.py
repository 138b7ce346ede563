"""Collects the volumes and mounts of a migrated file."""

from __future__ import annotations

from hvdchart.migrate.ledger import Ledger
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.volumes import CHARTS_MOUNTS, CHARTS_VOLUMES
from hvdchart.spec.yaml_tree import Plain

_SHM = "/dev/shm"  # noqa: S108  a mount path to recognize, no file of this process


class Volumes:
    """The volumes and mounts of master and workers, which the chart gives to both alike."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.volumes: dict[str, Plain] = {}
        self.mounts: dict[str, Plain] = {}

    def add(self, volumes: KeyPath, mounts: KeyPath) -> None:
        """Add the lists of volumes and of mounts at two paths of the input."""
        mounted_at_shm = {
            self.ledger.text_at(*mount, "name")
            for mount in self.ledger.items_at(*mounts)
            if self.ledger.text_at(*mount, "mountPath").rstrip("/") == _SHM
        }
        for path in self.ledger.items_at(*volumes):
            self._add_volume(path, mounted_at_shm)
        for path in self.ledger.items_at(*mounts):
            self._add_mount(path)

    def put(self, old: KeyPath) -> None:
        """Put all of them into the chart's values."""
        for key, entries in (("volumes", self.volumes), ("volumeMounts", self.mounts)):
            if entries:
                self.ledger.put((key,), list(entries.values()), old)

    def _add_volume(self, path: KeyPath, mounted_at_shm: set[str]) -> None:
        ledger = self.ledger
        entry = ledger.map_at(*path)
        name = ledger.text_at(*path, "name")
        if name in mounted_at_shm:
            size = ledger.text_at(*path, "emptyDir", "sizeLimit")
            if size:
                ledger.carry_over((*path, "emptyDir", "sizeLimit"), ("shm", "sizeLimit"), "", size)
            ledger.drop(path, f"the chart mounts {_SHM} itself; its size is shm.sizeLimit")
        elif self.volumes.get(name, entry) != entry:
            ledger.drop(path, f"another volume is already called {name}")
            ledger.add_check(f"volume {name} is defined twice: here it is the first definition")
        else:
            renamed = _new_name(name)
            self.volumes[name] = {**entry, "name": renamed}
            reason = "for master and workers"
            if renamed != name:
                reason = f"called {renamed}: the chart has a volume {name} of its own"
            ledger.change(path, ("volumes",), reason)

    def _add_mount(self, path: KeyPath) -> None:
        ledger = self.ledger
        entry = ledger.map_at(*path)
        mount_path = ledger.text_at(*path, "mountPath").rstrip("/")
        if mount_path in CHARTS_MOUNTS or mount_path.startswith("/horovod/"):
            ledger.drop(path, f"{mount_path} belongs to the system or to the chart")
        elif self.mounts.get(mount_path, entry) != entry:
            ledger.drop(path, f"another volume is already mounted at {mount_path}")
        else:
            name = _new_name(ledger.text_at(*path, "name"))
            self.mounts[mount_path] = {**entry, "name": name}
            ledger.change(path, ("volumeMounts",), "for master and workers")


def _new_name(name: str) -> str:
    return f"user-{name}" if name in CHARTS_VOLUMES else name
