"""Carries over `docker run`: image, volumes, variables, devices, limits. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hvdchart.errors import SpecError
from hvdchart.migrate.launch import Variable
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.pod_spec import NOT_PRIVILEGED, Volumes
from hvdchart.migrate.shell import Text
from hvdchart.spec.paths import KeyPath
from hvdchart.text import split_image

PROGRAMS = ("docker", "nvidia-docker", "podman")
# Options without an argument, and why the chart needs none.
_FLAGS = {
    "rm": "Kubernetes removes its containers", "detach": "the Job runs in the background",
    "interactive": "a pod has no terminal", "tty": "a pod has no terminal",
    "init": "the chart's programs reap processes", "privileged": NOT_PRIVILEGED,
}  # fmt: skip
# Options with an argument that become nothing, and why.
_UNUSED = {
    "name": "objects are named after the release", "hostname": "pods have names of their own",
    "h": "pods have names of their own", "ulimit": "the node's container runtime sets limits",
    "p": "the chart opens ssh.port", "publish": "the chart opens ssh.port",
    "ipc": "ranks of a worker share its /dev/shm", "log-driver": "Kubernetes keeps the logs",
    "log-opt": "Kubernetes keeps the logs",
}  # fmt: skip
# The chart's key for an option that is not taken.
_CHECKED = {
    "env-file": "worker.env", "entrypoint": "master.args, where it comes first",
    "device": "worker.resources", "cap-add": "worker.capabilities", "pull": "image.pullPolicy",
    "restart": "master.backoffLimit", "runtime": "worker.runtimeClassName", "l": "worker.podLabels",
    "label": "worker.podLabels", "security-opt": "securityContext", "add-host": "hostAliases",
}  # fmt: skip
_SIZE = re.compile(r"([0-9.]+)([bkmg]?)b?", re.IGNORECASE)
_UNITS = {"": "", "b": "", "k": "Ki", "m": "Mi", "g": "Gi"}


class DockerRun:
    """One `docker run` line: carries over its options, and keeps what the launcher needs."""

    def __init__(self, ledger: Ledger, old: KeyPath) -> None:
        self.ledger = ledger
        self.old = old
        self.environment: dict[str, Variable] = {}
        self.gpus = ""
        self._volumes = Volumes(ledger)
        # The names of the volumes by the host's directories.
        self._sources: dict[str, str] = {}
        self._readers: dict[str, Callable[[str, str], None]] = {
            "v": self._volume, "volume": self._volume, "mount": self._mount,
            "e": self._variable, "env": self._variable, "gpus": self._gpus,
            "shm-size": self._shm, "network": self._network, "net": self._network,
            "w": self._directory, "workdir": self._directory,
            "u": self._user, "user": self._user, "cpus": self._limit, "memory": self._limit,
            "m": self._limit,
        }  # fmt: skip
        self.limits: dict[str, str] = {}

    def read(self, words: Sequence[Text]) -> list[Text]:
        """Carry over the words after `docker run`; returns the command in the container."""
        rest = list(words)
        while rest and rest[0].text.startswith("-"):
            rest = rest[self._option(rest) :]
        if not rest:
            raise self._error("docker run without an image", "an image")
        self._known(rest[0], rest[0].text)
        for part, text in split_image(rest[0].text).items():
            self.ledger.put(("image", part), text, self.old)
        self.ledger.add_part(self.old, rest[0].text, "image", "split into its parts")
        self._volumes.put(self.old)
        return rest[1:]

    def _option(self, rest: Sequence[Text]) -> int:
        name, equals, value = rest[0].text.lstrip("-").partition("=")
        if name in _FLAGS or (not rest[0].text.startswith("--") and set(name) <= set("itd")):
            self.ledger.add_part(self.old, rest[0].text, "", _FLAGS.get(name, _FLAGS["tty"]))
            if name == "privileged":
                self.ledger.add_check(f"--privileged is {NOT_PRIVILEGED}")
            return 1
        if not rest[0].text.startswith("--") and len(name) > 1 and name[0] in "vewupm":
            name, equals, value = name[0], "=", rest[0].text[2:]  # -v/a:/b, -eA=b
        if name not in {**_UNUSED, **_CHECKED, **self._readers} or (not equals and len(rest) < 2):
            problem = f"migrate does not understand option {rest[0].text} of docker run"
            raise self._error(problem, "an option that it knows, or none")
        width = 1 if equals else 2
        value = value if equals else rest[1].text
        shown = f"--{name} {value}" if len(name) > 1 else f"-{name} {value}"
        if name in _UNUSED:
            self.ledger.add_part(self.old, shown, "", _UNUSED[name])
        elif name in _CHECKED:
            self.ledger.add_part(self.old, shown, "", f"see {_CHECKED[name]}")
            self.ledger.add_check(f"{shown} is not in the result: see {_CHECKED[name]}")
        else:
            for word in rest[:width]:
                self._known(word, shown)
            self._readers[name](shown, value)
        return width

    def _error(self, problem: str, expected: str) -> SpecError:
        return self.ledger.error(self.old, problem, expected)

    def _known(self, word: Text, shown: str) -> None:
        if word.unknown:
            raise self._error(f"only a shell knows {word.unknown} in {shown}", "its value")

    def _volume(self, shown: str, value: str) -> None:
        source, _, rest = value.partition(":")
        target, _, mode = rest.partition(":")
        self._add_volume(shown, source, target, read_only="ro" in mode.split(","))

    def _mount(self, shown: str, value: str) -> None:
        pairs = dict(item.partition("=")[::2] for item in value.split(","))
        source = pairs.get("source", pairs.get("src", ""))
        target = next((pairs[key] for key in ("target", "destination", "dst") if key in pairs), "")
        if pairs.get("type", "bind") != "bind":
            source = ""
        self._add_volume(shown, source, target, read_only="readonly" in pairs or "ro" in pairs)

    def _add_volume(self, shown: str, source: str, target: str, *, read_only: bool) -> None:
        if not source.startswith("/") or not target.startswith("/"):
            problem = f"{shown} is no directory of the host at an absolute path"
            raise self._error(problem, "absolute paths, or a claim by hand")
        if source == target == "/dev/shm":  # noqa: S108  a path to recognize
            self.ledger.add_part(self.old, shown, "", "the chart mounts /dev/shm itself")
            return
        name = self._sources.setdefault(source, f"host-{len(self._sources) + 1}")
        mount: dict[str, object] = {"name": name, "mountPath": target}
        if read_only:
            mount["readOnly"] = True
        self._volumes.add_pair(self.old, {"name": name, "hostPath": {"path": source}}, mount)
        self.ledger.add_part(self.old, shown, "volumeMounts", "a volume and its mount")
        self.ledger.add_check("hostPath volumes need the directory on every node, and a namespace "
                              "that admits Pod Security privileged")  # fmt: skip

    def _variable(self, shown: str, value: str) -> None:
        name, equals, content = value.partition("=")
        if not equals:
            raise self._error(f"{shown} takes the value from the user's shell", f"-e {name}=VALUE")
        if name in self.environment and self.environment[name]["value"] != content:
            raise self._error(f"the line sets {name} to two values", "one -e for each variable")
        self.environment[name] = {"name": name, "value": content}
        self.ledger.add_part(self.old, f"-e {name}=...", "worker.env", "for all ranks")

    def _gpus(self, shown: str, value: str) -> None:
        self.gpus = value.strip('"').removeprefix("count=")
        if self.gpus != "all" and not self.gpus.isdecimal():
            self.gpus = str(len(value.split(","))) if "device" in value else "all"
        self.ledger.add_part(self.old, shown, "worker.resources", "one GPU for each rank")

    def _shm(self, shown: str, value: str) -> None:
        self.ledger.put(("shm", "sizeLimit"), self._quantity(value), self.old)
        self.ledger.add_part(self.old, shown, "shm.sizeLimit")

    def _limit(self, shown: str, value: str) -> None:
        name = "cpu" if "cpus" in shown else "memory"
        self.limits[name] = value if name == "cpu" else self._quantity(value)
        self.ledger.add_part(self.old, shown, "worker.resources", "as limit")

    def _quantity(self, value: str) -> str:
        match = _SIZE.fullmatch(value)
        if not match:
            raise self._error(f"{value} is not a size", "a size such as 16g")
        return match[1] + _UNITS[match[2].lower()]

    def _directory(self, shown: str, value: str) -> None:
        for group in ("master", "worker"):
            self.ledger.put((group, "container", "workingDir"), value, self.old)
        self.ledger.add_part(self.old, shown, "master.container.workingDir", "and the workers'")

    def _network(self, shown: str, value: str) -> None:
        if value == "host":
            self.ledger.put(("hostNetwork",), True, self.old)
            self.ledger.add_part(self.old, shown, "hostNetwork")
            self.ledger.add_check("the Pod Security levels baseline and restricted reject "
                                  "hostNetwork; pods reach each other without it")  # fmt: skip
        else:
            self.ledger.add_part(self.old, shown, "", "pods have the cluster's network")

    def _user(self, shown: str, value: str) -> None:
        user, _, group = value.partition(":")
        if not user.isdecimal() or not (group or user).isdecimal():
            raise self._error(f"{shown} is not a number", "the number of the user")
        groups = {"runAsGroup": int(group)} if group else {}
        context = {"runAsUser": int(user), "runAsNonRoot": int(user) != 0, **groups}
        self.ledger.put(("podSecurityContext",), context, self.old)
        self.ledger.add_part(self.old, shown, "podSecurityContext")
