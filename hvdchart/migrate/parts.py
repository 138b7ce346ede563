"""What migrations of old values files and of MPIJobs share: images, command lines, volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hvdchart.migrate.command_line import CommandLine, take_apart
from hvdchart.migrate.ledger import NewPath, Reading
from hvdchart.spec.validate import CHARTS_MOUNTS, CHARTS_VOLUMES, Path
from hvdchart.spec.yaml_tree import Plain

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
# What MPI Operator mounts its host file as; scripts name it.
OPERATORS_HOSTFILE = "/etc/mpi/hostfile"


def gpus(resources: Plain) -> tuple[str, int] | None:
    """The GPU resource that a container limits or requests, and how many; None without one."""
    for part in ("limits", "requests"):
        found = resources.get(part) if isinstance(resources, Mapping) else None
        for name, count in found.items() if isinstance(found, Mapping) else ():
            if (name in GPU_RESOURCES or name.startswith("nvidia.com/mig-")) and (
                str(count).isdecimal() and int(count) > 0
            ):
                return name, int(count)
    return None


def split_image(reference: str) -> tuple[str, str]:
    """Repository and tag of an image reference; the chart puts a colon between the two.

    registry:5000/a/b -> (registry:5000/a/b, latest); a@sha256:1234 -> (a@sha256, 1234).
    """
    name, colon, tag = reference.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (reference, "latest")


def keep_image(reading: Reading, old: Path, new: NewPath) -> None:
    """An image in one text -> the chart's repository and tag at `new`."""
    reference = reading.text_at(*old)
    repository, tag = split_image(reference)
    reading.put((*new, "repository"), repository, old)
    reading.put((*new, "tag"), tag, old)
    reading.change(old, new, "in two: repository and tag")


def keep_resources(reading: Reading, old: Path) -> int | None:
    """The workers' resources; the slots that its GPUs make, None without GPUs."""
    reading.keep(old, ("worker", "resources"))
    found = gpus(reading.find(*old))
    return found[1] if found else None


def keep_command(reading: Reading, old: Path, words: Sequence[str], why: str = "") -> CommandLine:
    """The launcher's command line at `old` -> master.args and launch; what it asked for."""
    line = take_apart(words)
    reading.change(old, ("master", "args"), why or "its words are told of one by one below")
    if line.mode == "custom":
        command = [word.replace(OPERATORS_HOSTFILE, "$(HOSTFILE)") for word in line.command]
        reading.put(("master", "args"), command, old)
        reading.put(("launch", "mode"), "custom", old)
        reading.note(old, "the whole line", "launch.mode", f"custom: {line.why_custom}")
        reading.check(
            "launch.mode is custom, so the command line runs as it stands on the master, after "
            "the workers answer: see that it names the host file /horovod/generated/hostfile and "
            "as many ranks as worker.number x worker.slots"
        )
    else:
        _keep_launch(reading, old, line)
    if any("$(" in word for word in words):
        reading.check("Kubernetes expanded $(NAME) in the old arguments; here they stand as text")
    return line


def _keep_launch(reading: Reading, old: Path, line: CommandLine) -> None:
    reading.put(("master", "args"), line.command, old)
    reading.note(old, "the training command", "master.args", "without its launcher")
    if line.mode != "mpirun":
        reading.put(("launch", "mode"), line.mode, old)
        reading.note(old, "horovodrun", "launch.mode", line.mode)
    for key, ranks in (("minRanks", line.fewest), ("maxRanks", line.most)):
        if ranks is not None:
            reading.put(("launch", "elastic", key), ranks, old)
    if line.options:
        reading.put(("launch", "options"), line.options, old)
        reading.note(old, " ".join(line.options), "launch.options", "as they were")
    for words, why in line.left_out:
        reading.note(old, words, "", why)
    for name, said in line.exports:
        shown = f"-x {name}" if said is None else f"-x {name}=..."
        why = "every rank sees its worker's environment"
        reading.note(old, shown, "" if said is None else "worker.env", why)


class Environment:
    """Variables of one list, each kept once: who comes first wins."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Plain]] = {}

    def add(self, entry: dict[str, Plain]) -> bool:
        """Take a variable; False when one of that name was taken before with another value."""
        first = self.entries.setdefault(str(entry.get("name")), entry)
        return first == entry

    def put(self, reading: Reading, new: NewPath, old: Path) -> None:
        """Put what was taken at `new`."""
        if self.entries:
            reading.put(new, list(self.entries.values()), old)


def keep_env_map(reading: Reading, old: Path, into: Environment, why: str) -> None:
    """A map of variables -> worker.env."""
    for name in reading.map_at(*old):
        path = (*old, name)
        if reading.find(*path) is None:
            reading.drop(path, "null says nothing")
            continue
        text = reading.text_at(*path)
        if isinstance(reading.find(*path), bool):
            text = text.lower()
        if into.add({"name": name, "value": text}):
            reading.change(path, ("worker", "env"), why)
        else:
            reading.drop(path, "said twice with two values: the one that was in force is kept")


def keep_exports(line: CommandLine, into: Environment, launchers: Mapping[str, Plain]) -> None:
    """mpirun's -x: a value given with it, or the variable of the launcher's own environment."""
    for name, said in line.exports:
        if said is not None:
            into.add({"name": name, "value": said})
        elif name in launchers:
            into.add(launchers[name])


class Volumes:
    """Volumes and mounts that the chart gives to master and workers alike, gathered from both."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.volumes: dict[str, Plain] = {}
        self.mounts: dict[str, Plain] = {}
        self._left_out: dict[str, str] = {}

    def gather(self, volumes: Path, mounts: Path) -> None:
        """Take the volumes and mounts at two paths of the input."""
        shm = {
            self.reading.text_at(*mounts, index, "name")
            for index in range(len(self.reading.list_at(*mounts)))
            if self.reading.text_at(*mounts, index, "mountPath").rstrip("/") == "/dev/shm"  # noqa: S108
        }
        for index in range(len(self.reading.list_at(*volumes))):
            self._volume((*volumes, index), shm)
        for index in range(len(self.reading.list_at(*mounts))):
            self._mount((*mounts, index))

    def put(self, old: Path) -> None:
        """Put all of them into the values."""
        for key, found in (("volumes", self.volumes), ("volumeMounts", self.mounts)):
            if found:
                self.reading.put((key,), list(found.values()), old)

    def _volume(self, path: Path, shm: set[str]) -> None:
        reading = self.reading
        entry = reading.map_at(*path)
        name = reading.text_at(*path, "name")
        if name in shm:
            size = reading.text_at(*path, "emptyDir", "sizeLimit")
            if size:
                reading.keep((*path, "emptyDir", "sizeLimit"), ("shm", "sizeLimit"), "", size)
            reading.drop(path, "the chart makes /dev/shm itself: shm.sizeLimit")
        elif self.volumes.get(name, entry) != entry:
            reading.drop(path, f"the master has another volume {name}: the workers' one is kept")
            reading.check(f"volume {name} was not the same in launcher and workers; here it is")
        else:
            renamed = f"user-{name}" if name in CHARTS_VOLUMES else name
            self.volumes[name] = {**entry, "name": renamed}
            why = "" if renamed == name else f"renamed {renamed}: the chart has a {name} of its own"
            reading.change(path, ("volumes",), why or "for master and workers")

    def _mount(self, path: Path) -> None:
        reading = self.reading
        entry = reading.map_at(*path)
        name = reading.text_at(*path, "name")
        place = reading.text_at(*path, "mountPath").rstrip("/")
        if place in CHARTS_MOUNTS or place.startswith("/horovod/"):
            reading.drop(path, f"the chart mounts {place} itself")
        elif self.mounts.get(place, entry) != entry:
            reading.drop(path, f"another volume is mounted at {place} in the workers")
        else:
            renamed = f"user-{name}" if name in CHARTS_VOLUMES else name
            self.mounts[place] = {**entry, "name": renamed}
            reading.change(path, ("volumeMounts",), "for master and workers")
