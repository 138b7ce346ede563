"""What the ranks of a run reduce with, from the spec or its code, and what follows. Pure."""

from __future__ import annotations

import ast
import base64
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hvdchart.plan.rules import Reason, override_reason
from hvdchart.spec.model import Spec
from hvdchart.spec.yaml_tree import Plain

# A program that uses one of these modules reduces with the framework.
_SIGNS = {
    "horovod": ("horovod",),
    "torch": ("torch.distributed", "accelerate", "deepspeed", "lightning", "pytorch_lightning"),
    "jax": ("jax.distributed", "keras.distribution"),
    "mpi": ("mpi4py",),
}
# What a worker imports in advance. Both can be forked: they start no threads before they are used.
_PRELOAD = {"torch": ("torch",), "jax": ("jax",)}
# The code of a run has less; an archive that becomes more is not read.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Framework:
    """What the ranks reduce with (None where nothing says it), and the planned keys of `launch`."""

    name: str | None
    mode: str
    preload: tuple[str, ...]
    reasons: Mapping[str, Reason]


def plan_framework(spec: Spec) -> Framework:
    """The framework of a spec, and the launch mode and imports in advance that follow from it."""
    name, reason = spec.train.framework, override_reason("train.framework")
    if name is None:
        name, because = _find(spec)
        reason = Reason(because, "hvdchart")
    mode, reasons = spec.launch.mode, {"framework": reason, "preload": reason}
    if mode is None:
        # Options are for mpirun.
        mode = "direct" if name in _PRELOAD and not spec.launch.options else "mpirun"
        reasons["mode"] = reason
    has_gpus = any(group.gpus for group in spec.nodes)
    preload = () if has_gpus or name is None else _PRELOAD.get(name, ())
    return Framework(name, mode, preload, reasons)


def _find(spec: Spec) -> tuple[str | None, str]:
    """The framework that the program uses, and where; None without code or where it uses more.

    Horovod counts before the others: its scripts use parts of those.
    """
    code = spec.values.get("code")
    sources = _sources(code) if isinstance(code, Mapping) else {}
    used: dict[str, str] = {}
    for file, tree in _program(sources, spec.train.command):
        for line, module in _modules(tree):
            for name, signs in _SIGNS.items():
                if any(f"{module}.".startswith(f"{sign}.") for sign in signs):
                    used.setdefault(name, f"{file}:{line} uses {module}")
    if "horovod" in used or len(used) == 1:
        name = "horovod" if "horovod" in used else next(iter(used))
        return name, used[name]
    return None, "the code does not say it"


def _sources(code: Mapping[str, Plain]) -> dict[str, bytes]:
    """The Python files of the chart's value `code` by their names; none where it is wrong."""
    files = code.get("files")
    found = dict(files) if isinstance(files, Mapping) else {}
    sources = {name: text.encode() for name, text in found.items() if isinstance(text, str)}
    try:
        data = zlib.decompressobj(47).decompress(
            base64.b64decode(str(code.get("archive") or "")), _MOST_BYTES
        )
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".py"):
                    content = archive.extractfile(member)
                    assert content  # noqa: S101 - a regular file
                    sources[member.name.removeprefix("./")] = content.read()
    except (ValueError, zlib.error, tarfile.TarError, EOFError):
        # None is given, or the pods will say what is wrong with it.
        return sources
    return sources


def _program(
    sources: Mapping[str, bytes], command: Sequence[str]
) -> Iterator[tuple[str, ast.Module]]:
    """The command's script and what it imports of the code, with their names."""
    modules = {name.removesuffix("/__init__.py").removesuffix(".py"): name for name in sources}
    words = [word.removeprefix("./") for word in command]
    waiting = [word for word in words if word in sources][:1]
    if not waiting and "-m" in words[:-1]:
        waiting = [modules.get(words[words.index("-m") + 1].replace(".", "/"), "")]
    seen = {""}
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        try:
            tree = ast.parse(sources[file])
        except (SyntaxError, ValueError, RecursionError):
            # The ranks will say it.
            continue
        yield file, tree
        named = (module.replace(".", "/") for _, module in _modules(tree))
        waiting += [modules[name] for name in named if name in modules]


def _modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that a program imports or uses as an attribute of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, f"{node.value.id}.{node.attr}"
