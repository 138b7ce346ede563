"""Carries over `docker run`: image, volumes, variables, devices, limits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hvdchart.errors import SpecError
from hvdchart.migrate.launch import Variable
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.pod_spec import NOT_PRIVILEGED, Volumes
from hvdchart.migrate.shell import Text
from hvdchart.spec.paths import KeyPath
from hvdchart.text import split_image

PROGRAMS = ("docker", "nvidia-docker", "podman")
# Options without and with an argument that become nothing.
_FLAGS = ("rm", "detach", "interactive", "tty", "init", "privileged")
_UNUSED = ("name", "hostname", "h", "ulimit", "p", "publish", "ipc", "log-driver", "log-opt")
_NEEDLESS = "Kubernetes or the chart has a way of its own"
# The chart's key for an option that is not taken.
_CHECKED = {
    "env-file": "worker.env",
    "entrypoint": "master.args, where it comes first",
    "device": "worker.resources",
    "cap-add": "worker.capabilities",
    "pull": "image.pullPolicy",
    "restart": "master.backoffLimit",
    "runtime": "worker.runtimeClassName",
    "security-opt": "securityContext",
    "add-host": "hostAliases",
    "mount": "volumeMounts",
    "shm-size": "shm.sizeLimit",
    **dict.fromkeys(("l", "label"), "worker.podLabels"),
    **dict.fromkeys(("network", "net"), "hostNetwork; pods reach each other without it"),
    **dict.fromkeys(("cpus", "memory", "m"), "worker.resources"),
    **dict.fromkeys(("u", "user"), "podSecurityContext"),
    **dict.fromkeys(("w", "workdir"), "container.workingDir of master and worker"),
}


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
            "v": self._volume,
            "volume": self._volume,
            "e": self._variable,
            "env": self._variable,
            "gpus": self._gpus,
        }

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
        word = rest[0].text
        name, equals, value = word.lstrip("-").partition("=")
        if name in _FLAGS or (not word.startswith("--") and set(name) <= set("itd")):
            self.ledger.add_part(self.old, word, "", _NEEDLESS)
            if name == "privileged":
                self.ledger.add_check(f"--privileged is dropped: {NOT_PRIVILEGED}")
            return 1
        if name not in {*_UNUSED, *_CHECKED, *self._readers} or (not equals and len(rest) < 2):
            problem = f"migrate does not understand option {word} of docker run"
            raise self._error(problem, "an option that it knows, or none")
        width = 1 if equals else 2
        value = value if equals else rest[1].text
        shown = f"--{name} {value}" if len(name) > 1 else f"-{name} {value}"
        if name in _UNUSED:
            self.ledger.add_part(self.old, shown, "", _NEEDLESS)
        elif name in _CHECKED:
            self.ledger.add_part(self.old, shown, "", f"see {_CHECKED[name]}")
            self.ledger.add_check(f"{shown} is not in the result: see {_CHECKED[name]}")
        else:
            for each in rest[:width]:
                self._known(each, shown)
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
        if not source.startswith("/") or not target.startswith("/"):
            problem = f"{shown} is no directory of the host at an absolute path"
            raise self._error(problem, "absolute paths, or a claim by hand")
        if source == target == "/dev/shm":  # noqa: S108  a path to recognize
            self.ledger.add_part(self.old, shown, "", "the chart mounts /dev/shm itself")
            return
        name = self._sources.setdefault(source, f"host-{len(self._sources) + 1}")
        mount: dict[str, object] = {"name": name, "mountPath": target}
        if "ro" in mode.split(","):
            mount["readOnly"] = True
        self._volumes.add_pair(self.old, {"name": name, "hostPath": {"path": source}}, mount)
        self.ledger.add_part(self.old, shown, "volumeMounts", "a volume and its mount")
        self.ledger.add_check(
            "hostPath volumes need the directory on every node, and a namespace "
            "that admits Pod Security privileged"
        )

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
