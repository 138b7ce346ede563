"""Collects the volumes and mounts of a migrated file."""

from __future__ import annotations

from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.trees import without_nulls
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.volumes import CHARTS_MOUNTS, CHARTS_VOLUMES
from hvdchart.spec.yaml_tree import Plain

_SHM = "/dev/shm"  # noqa: S108  a mount path to recognize, no file of this process


class Volumes:
    """The volumes and mounts of master and workers, which the chart gives to both alike."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        # By name and by path, as they are in the file.
        self.volumes: dict[str, Plain] = {}
        self.mounts: dict[str, Plain] = {}
        self._mount_places: dict[str, KeyPath] = {}

    def add(self, volumes: KeyPath, mounts: KeyPath) -> None:
        """Add the lists of volumes and of mounts at two paths of the input."""
        ledger = self.ledger
        at: dict[str, set[bool]] = {}
        for mount in ledger.items_at(*mounts):
            is_shm = ledger.text_at(*mount, "mountPath").rstrip("/") == _SHM
            at.setdefault(ledger.text_at(*mount, "name"), set()).add(is_shm)
        for path in ledger.items_at(*volumes):
            wanted = at.get(ledger.text_at(*path, "name"), set())
            if len(wanted) == 2:
                problem = f"the volume is mounted at {_SHM} and elsewhere"
                raise ledger.error(path, problem, f"a volume of its own for {_SHM}")
            self._add_volume(path, at_shm=wanted == {True})
        for path in ledger.items_at(*mounts):
            self._add_mount(path)

    def add_pair(self, old: KeyPath, volume: dict[str, Plain], mount: dict[str, Plain]) -> None:
        """Add a volume and its mount that a value of another kind describes, and record it."""
        name, path = str(volume["name"]), str(mount["mountPath"]).rstrip("/")
        if self.volumes.get(name, volume) != volume or self.mounts.get(path, mount) != mount:
            problem = f"another volume is called {name} or mounted at {path}"
            raise self.ledger.error(old, problem, "different names and mount paths")
        if path in CHARTS_MOUNTS or path.startswith("/horovod/"):
            problem = f"{path or '/'} belongs to the system or to the chart"
            raise self.ledger.error(old, problem, "another mount path")
        self.volumes[name], self.mounts[path] = volume, mount
        self._mount_places[path] = old
        if old:
            self.ledger.change(old, ("volumeMounts",), "a volume and its mount")

    def put(self, old: KeyPath) -> None:
        """Put all of them into the chart's values."""
        for path, mount in self.mounts.items():
            if mount.get("name") not in self.volumes:
                problem = f"no volume is called {mount.get('name')}"
                expected = f"one of {', '.join(self.volumes) or 'volumes, which has none'}"
                raise self.ledger.error(self._mount_places[path], problem, expected)
        new_names = {name: f"user-{name}" for name in self.volumes if name in CHARTS_VOLUMES}
        clash = sorted(set(new_names.values()) & set(self.volumes))
        if clash:
            problem = f"the chart has a volume {clash[0].removeprefix('user-')} of its own"
            raise self.ledger.error(old, problem, f"no volume called {clash[0]}")
        for key, entries in (("volumes", self.volumes), ("volumeMounts", self.mounts)):
            renamed = [
                without_nulls({**entry, "name": new_names.get(entry["name"], entry["name"])})
                for entry in entries.values()
            ]
            if renamed:
                self.ledger.put((key,), renamed, old)

    def _add_volume(self, path: KeyPath, *, at_shm: bool) -> None:
        ledger = self.ledger
        entry = ledger.map_at(*path)
        name = ledger.text_at(*path, "name")
        if at_shm:
            size = ledger.text_at(*path, "emptyDir", "sizeLimit")
            if size:
                ledger.carry_over((*path, "emptyDir", "sizeLimit"), ("shm", "sizeLimit"), "", size)
            ledger.drop(path, f"the chart mounts {_SHM} itself; its size is shm.sizeLimit")
        elif not name:
            raise ledger.error(path, "a volume without a name", "a name")
        elif self.volumes.get(name, entry) != entry:
            ledger.drop(path, f"another volume is already called {name}")
            ledger.add_check(f"volume {name} is defined twice: here it is the first definition")
        else:
            self.volumes[name] = entry
            reason = "for master and workers"
            if name in CHARTS_VOLUMES:
                reason = f"called user-{name}: the chart has a volume {name} of its own"
            ledger.change(path, ("volumes",), reason)

    def _add_mount(self, path: KeyPath) -> None:
        ledger = self.ledger
        entry = ledger.map_at(*path)
        mount_path = ledger.text_at(*path, "mountPath").rstrip("/")
        if not mount_path.startswith("/"):
            raise ledger.error(path, f"the mount path is {mount_path!r}", "an absolute path")
        if mount_path in CHARTS_MOUNTS or mount_path.startswith("/horovod/"):
            ledger.drop(path, f"{mount_path} belongs to the system or to the chart")
            if mount_path != _SHM:
                ledger.add_check(f"the mount at {mount_path} is dropped: the chart's own is there")
        elif self.mounts.get(mount_path, entry) != entry:
            ledger.drop(path, f"another volume is already mounted at {mount_path}")
            ledger.add_check(f"two volumes are mounted at {mount_path}: here it is the first")
        else:
            self.mounts[mount_path] = entry
            self._mount_places[mount_path] = path
            ledger.change(path, ("volumeMounts",), "for master and workers")
