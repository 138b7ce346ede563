"""Make the spec of a script from the options of `hvdchart run`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from hvd_pods.shared.contract import TAG_OUTPUT
from hvdchart.errors import SpecError
from hvdchart.quantity import cpu_millis
from hvdchart.script.default_images import DefaultImage
from hvdchart.script.options import DEFAULT_WORKERS, ScriptRun
from hvdchart.spec.fields import API_VERSION, IMAGE, OBJECT_NAME
from hvdchart.spec.model import DEFAULT_MOUNTS
from hvdchart.spec.overlays import apply_settings, set_key
from hvdchart.spec.yaml_tree import Node, Plain, SourcePlace, from_plain
from hvdchart.text import split_image

_VOLUME = (
    "NAME=pvc:CLAIM:/PATH, NAME=hostPath:/FOLDER:/PATH, NAME=nfs:SERVER:/FOLDER:/PATH, "
    "NAME=configMap:MAP:/PATH or NAME=emptyDir:/PATH, with :ro at the end to mount it read-only"
)
# An NFS server's IPv6 address in brackets, and the folder and path after it.
_IPV6_SERVER = re.compile(r"nfs:\[([0-9A-Fa-f:.]+)\]:(.*)")
_SOURCES = ("pvc", "hostPath", "nfs", "configMap")
# The request of a worker without --cpu: it is scheduled on nodes that other pods use, too.
SCRIPT_CPU = "250m"


def make_script_tree(
    run: ScriptRun, default: DefaultImage | None, *, is_tagged: bool = False
) -> Node:
    """Return the tree of a run's spec; the place of each value is its option.

    `default` is the image if the user names none. With `is_tagged`, lines of the output name their
    rank if the launcher is known to support that. Raises SpecError for an option that cannot be
    read, and for a setting that has no place.
    """
    workers = DEFAULT_WORKERS if run.workers is None else run.workers
    node: dict[str, Plain] = {"name": "worker", "count": workers}
    if not run.gpus:
        tuning = {"cpu": SCRIPT_CPU}
        node |= {"shared": True, "coresPerSocket": 1, "memory": "3Gi", "tuning": tuning}
    reference = default.reference if default else run.image or ""
    image = split_image(reference) if reference else {}
    if run.image:
        _require_image(run.image, image["repository"])
    base: dict[str, Plain] = {
        "apiVersion": API_VERSION,
        "name": run.name,
        "nodes": [node],
        "image": image,
        "volumes": {"output": {"emptyDir": {}}},
        "train": {"command": list(run.command)},
    }
    tree = from_plain(base, SourcePlace("hvdchart run"))
    if default:
        if not default.has_mpi:
            # Images with only a framework have no MPI, and these frameworks need none.
            tree = set_key(tree, ["launch", "mode"], "direct", SourcePlace("the default image"))
        tree = apply_settings(tree, default.settings)
    if is_tagged:
        place = SourcePlace("the output's tags")
        tree = set_key(tree, ["train", "env", TAG_OUTPUT], "1", place)
    for setting in _read_options(run):
        tree = set_key(tree, setting.steps, setting.value, SourcePlace(setting.text))
    return apply_settings(tree, run.settings)


def _require_image(reference: str, repository: str) -> None:
    """Raise SpecError for a name that no image can have."""
    place = SourcePlace(f"--image {reference}")
    if reference.endswith((":", "@")):
        part = "digest" if reference.endswith("@") else "tag"
        raise SpecError(str(place), "", f"its {part} is empty", f"a {part} at the end")
    expected = "an image in lower case, such as registry.example/team/train:1"
    dataclasses.replace(IMAGE, expected=expected).read(Node(place, repository), "")


class _Setting(NamedTuple):
    """A setting of an option: the text of the option, the steps of the key, and the value."""

    text: str
    steps: list[str]
    value: Plain


class _Once:
    """Refuses a name that an option gives twice: one of them would be lost."""

    def __init__(self, option: str, kind: str) -> None:
        self._option = option
        self._kind = kind
        self._names: set[str] = set()

    def add(self, name: str, text: str) -> None:
        """Take the next name of the option. Raises SpecError when it was given before."""
        if name in self._names:
            problem = f"the {self._kind} {name} is given twice"
            raise SpecError(f"{self._option} {text}", "", problem, "each name once")
        self._names.add(name)


def _read_options(run: ScriptRun) -> Iterator[_Setting]:
    """Yield the settings of each option."""
    yield from _read_resources(run)
    yield from _read_variables(run.env or ())
    volumes = list(_read_volumes(run.volumes or ()))
    yield from _read_secrets(run.secrets or (), {setting.steps[-1] for setting in volumes})
    yield from volumes


def _read_resources(run: ScriptRun) -> Iterator[_Setting]:
    if run.gpus:
        yield _Setting(f"--gpus {run.gpus}", ["nodes", "0", "gpus"], run.gpus)
    if run.cpu:
        text = f"--cpu {run.cpu}"
        yield _Setting(text, ["nodes", "0", "tuning", "cpu"], run.cpu)
        try:
            cores = max(cpu_millis(run.cpu) // 1000, 1)
        except ValueError:
            # The check of the request refuses it.
            cores = 1
        yield _Setting(text, ["nodes", "0", "coresPerSocket"], cores)
    if run.memory:
        key = ["tuning", "memory"] if run.gpus else ["memory"]
        yield _Setting(f"--memory {run.memory}", ["nodes", "0", *key], run.memory)


def _read_variables(variables: Sequence[str]) -> Iterator[_Setting]:
    once = _Once("--env", "variable")
    for variable in variables:
        name, equals, value = variable.partition("=")
        if not equals:
            raise SpecError(f"--env {variable}", "", "there is no =", "NAME=VALUE")
        once.add(name, variable)
        yield _Setting(f"--env {variable}", ["train", "env", name], value)


def _read_secrets(secrets: Sequence[str], taken: Collection[str]) -> Iterator[_Setting]:
    """Yield variables from Secrets, and volumes of those with a path, under names not `taken`."""
    once = _Once("--secret", "Secret")
    for secret in secrets:
        once.add(secret, secret)
        name = secret.partition(":")[0]
        place = SourcePlace(f"--secret {secret}")
        OBJECT_NAME.read(Node(place, name), "")
    names = [secret for secret in secrets if ":" not in secret]
    if names:
        # A list replaces another one.
        sources = [{"secretRef": {"name": name}} for name in names]
        yield _Setting(f"--secret {names[0]}", ["values", "worker", "envFrom"], sources)
    for index, secret in enumerate(secrets):
        name, colon, path = secret.partition(":")
        if colon:
            volume = {"secret": name, "mountPath": path, "readOnly": True}
            volume_name = f"secret-{index}"
            while volume_name in taken:
                volume_name += "-0"
            yield _Setting(f"--secret {secret}", ["volumes", volume_name], volume)


def _read_volumes(volumes: Sequence[str]) -> Iterator[_Setting]:
    once = _Once("--volume", "volume")
    for text in volumes:
        name, volume = _parse_volume(text)
        once.add(name, text)
        yield _Setting(f"--volume {text}", ["volumes", name], volume)


def _parse_volume(text: str) -> tuple[str, Plain]:
    """Return the name of a volume, and its map in a spec. Raises SpecError for another text."""
    name, _, rest = text.partition("=")
    volume: dict[str, Plain] = {}
    if rest.endswith(":ro"):
        rest = rest.removesuffix(":ro")
        volume["readOnly"] = True
    kind, *parts = rest.split(":")
    address = _IPV6_SERVER.fullmatch(rest)
    if address:
        parts = [address[1], *address[2].split(":")]
    if kind == "emptyDir":
        volume["emptyDir"] = {}
    elif kind == "nfs" and len(parts) > 1:
        server, path, *parts = parts
        volume["nfs"] = {"server": server, "path": path}
    elif kind in _SOURCES and parts and kind != "nfs":
        source, *parts = parts
        volume[kind] = source
    elif kind.startswith("/"):
        expected = f"`--volume {name}=hostPath:{rest}` for a folder of each node, or {_VOLUME}"
        raise SpecError(f"--volume {text}", "", "this is no volume", expected)
    else:
        raise SpecError(f"--volume {text}", "", "this is no volume", _VOLUME)
    if len(parts) > 1:
        raise SpecError(f"--volume {text}", "", "it has too many parts", _VOLUME)
    if parts:
        volume["mountPath"] = parts[0]
    elif name not in DEFAULT_MOUNTS:
        expected = f"`--volume {name}={rest}:/PATH{':ro' if 'readOnly' in volume else ''}`"
        raise SpecError(f"--volume {text}", "", "it has no path", expected)
    return name, volume
