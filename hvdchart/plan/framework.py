"""What the ranks of a run reduce with, from the spec or its code, and what follows. Pure."""

from __future__ import annotations

import ast
import base64
import io
import re
import sys
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from hvdchart.chart_files import MOST_CODE_BYTES
from hvdchart.plan.rules import Reason, override_reason
from hvdchart.spec.launchers import is_line_of_horovodrun
from hvdchart.spec.model import Spec
from hvdchart.spec.yaml_tree import Plain, shorten

# A program that uses one of these modules reduces with the framework.
_SIGNS = {
    "horovod": ("horovod",),
    "torch": ("torch.distributed", "accelerate", "deepspeed", "lightning", "pytorch_lightning"),
    "jax": ("jax.distributed", "keras.distribution"),
    "mpi": ("mpi4py",),
}
# A module that prefers MPI to Gloo on CPUs, where PyTorch was compiled with it.
_MPI_ON_CPUS = "accelerate"
# The keys of what a training needs to be one of many ranks, and of what trains, which may not.
_JOINS = "joins"
_TRAINS = "trains"
_JOINING = (
    *(sign for signs in _SIGNS.values() for sign in signs),
    "byteps",
    "colossalai",
    "composer",
    "fairscale",
    "fastai",
    "ignite",
    "megatron",
    "mmengine",
    "ray",
    "torch_xla",
    "torchtune",
    "transformers.Seq2SeqTrainer",
    "transformers.Trainer",
    "transformers.trainer",
    "trl",
    "ultralytics",
)
_TRAINING = ("torch", "tensorflow", "keras", "tf_keras", "jax", "flax")
# What lets the ranks of a program train one model, by what trains it.
_BY_TORCH = (
    "add `torch.distributed.init_process_group()`, and wrap the model in DistributedDataParallel; "
    "`hvdchart init` writes such a script"
)
_BY_JAX = "add `jax.distributed.initialize()` before anything else of JAX"
_BY_HOROVOD = (
    "add Horovod's `hvd.init()` and its DistributedOptimizer, in an image with Horovod; "
    "`hvdchart init --template keras` writes such a script"
)
_JOINED_BY = {"torch": _BY_TORCH, "jax": _BY_JAX, "flax": _BY_JAX}
# Others that join none. A module that is in no list here may.
_ALONE = (
    "PIL",
    "cv2",
    "einops",
    "h5py",
    "hvd_progress",
    "imageio",
    "keep",
    "matplotlib",
    "numpy",
    "optax",
    "pandas",
    "requests",
    "safetensors",
    "scipy",
    "seaborn",
    "skimage",
    "sklearn",
    "tensorboard",
    "tensorflow_datasets",
    "tokenizers",
    "torchaudio",
    "torchtext",
    "torchvision",
    "tqdm",
    "yaml",
)
# A program that names one of these may divide its work itself, or import by name what joins ranks.
_OF_RANKS = re.compile(
    rb"\b(?:(?:LOCAL|NODE|GROUP|PMI|OMPI_\w+)_)?RANK\b"
    rb"|WORLD_SIZE|PROCESS_ID|NUM_PROCESSES|[Hh]orovod|torch\.distributed|torchrun"
)
# TensorFlow's strategy for many machines, and the variable in which it looks for them.
_STRATEGY = "MultiWorkerMirroredStrategy"
_STRATEGYS_VARIABLE = "TF_CONFIG"
# The key of a line that makes PyTorch or JAX reduce with MPI.
_BACKEND = "backend mpi"
# The key of a line that makes PyTorch reduce with NCCL, and of one that makes ranks meet here.
_NCCL = "backend nccl"
_LOCAL = "meets here"
_OWN_ADDRESSES = ("localhost", "127.0.0.1", "[::1]", "::1")
_IS_LINE = "train.command is a line of horovodrun"
# What a worker imports in advance. Both can be forked: they start no threads before they are used.
_PRELOAD = {"torch": ("torch",), "jax": ("jax",)}
# The key of a line that saves to a file of the pod, and the functions that do.
_SAVES = "saves"
_RELATIVE = re.compile(r"[^/\s][^\n]*[./][^\n]*")
# A file that names it saves where it says.
_OUTPUT = b"OUTPUT_PATH"
_SAVING = ("save", "save_model", "save_pretrained", "save_weights")
# Characters of a line that a message shows.
_LONGEST_LINE = 80
# For zlib: the largest window, and a header of gzip or zlib, whichever there is.
_ANY_HEADER = 32 + 15


@dataclass(frozen=True)
class Framework:
    """What the ranks reduce with (None where nothing says it), and the planned keys of `launch`.

    `broken` are the files of the program that are no Python of this version: what is wrong with
    each, by the file's name. `alone` says why each rank trains a model of its own, and `remedy`
    what joins the ranks; both are empty where that is not known. `nccl` is the place that chooses
    NCCL, `local` what makes the ranks meet at an address that each worker has for itself, and
    `saves` what saves to a folder that ends with the pod; all three are empty where nothing does.
    """

    name: str | None
    mode: str
    preload: tuple[str, ...]
    reasons: Mapping[str, Reason]
    broken: Mapping[str, str]
    alone: str
    remedy: str
    nccl: str
    local: str
    saves: str


def plan_framework(spec: Spec) -> Framework:
    """The framework of a spec, and the launch mode and imports in advance that follow from it.

    What the spec itself says counts; else the code in its `values`, where there is some.
    """
    code = spec.values.get("code")
    sources = _sources(code) if isinstance(code, Mapping) else {}
    broken: dict[str, str] = {}
    used = _find(sources, spec.train.command, broken)
    is_line = is_line_of_horovodrun(spec)
    name = spec.train.framework
    reason = override_reason("train.framework")
    if name is None:
        name, because = _of_line(used) if is_line else _choose(sources, used)
        reason = Reason(because, "hvdchart")
    mode = spec.launch.mode
    reasons = {"framework": reason, "preload": reason}
    if is_line:
        mode = "direct"
        reasons["mode"] = Reason(_IS_LINE, "hvdchart")
    elif mode is None:
        # Options are for mpirun.
        mode = "direct" if name in _PRELOAD and not spec.launch.options else "mpirun"
        reasons["mode"] = reason
        # Where PyTorch was compiled with MPI, each rank that mpirun has not started trains alone.
        with_mpi = used.get(_BACKEND)
        if not with_mpi and not all(group.gpus for group in spec.nodes):
            with_mpi = used.get(_MPI_ON_CPUS)
        if mode == "direct" and with_mpi:
            mode = "mpirun"
            reasons["mode"] = Reason(f"{with_mpi}, which may use MPI", "hvdchart")
    has_gpus = any(group.gpus for group in spec.nodes)
    preload: tuple[str, ...] = ()
    if name is not None and not has_gpus:
        preload = _PRELOAD.get(name, ())
    alone = "" if broken else _alone(spec, sources, used)
    nccl, local, saves = (used.get(key, "") for key in (_NCCL, _LOCAL, _SAVES))
    remedy = _remedy(used) if alone else ""
    return Framework(name, mode, preload, reasons, broken, alone, remedy, nccl, local, saves)


def _remedy(used: Mapping[str, str]) -> str:
    """What joins the ranks of a program that uses these."""
    if _STRATEGY in used:
        return f"set it, or {_BY_HOROVOD}"
    # It ends with the module.
    module = used[_TRAINS].rpartition(" ")[2].partition(".")[0]
    return _JOINED_BY.get(module, _BY_HOROVOD)


def _alone(spec: Spec, sources: Mapping[str, bytes], used: Mapping[str, str]) -> str:
    """Why each rank of a program that uses these trains a model of its own; empty where unknown."""
    is_told = spec.train.framework or is_line_of_horovodrun(spec) or spec.launch.mode == "custom"
    if is_told or _JOINS in used or _TRAINS not in used:
        return ""
    if _STRATEGY in used:
        variable = _STRATEGYS_VARIABLE
        is_set = variable in spec.train.env or variable in used
        return "" if is_set else f"{used[_STRATEGY]}, which needs {variable}, and nothing sets that"
    words = (word.removeprefix("./") for word in spec.train.command)
    file = next((word for word in words if word in sources), "the code")
    return f"nothing in {file} joins the ranks"


def used_modules(code: Plain, command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What the program of a command imports, each with its place: ("train.py:1", "torch").

    `code` is the chart's value of that name. Nothing is run.
    """
    sources = _sources(code) if isinstance(code, Mapping) else {}
    for file, tree in _program(sources, command, {}):
        for line, module in _imports(tree):
            yield f"{file}:{line}", module


def needed_modules(code: Plain, command: Sequence[str]) -> frozenset[str]:
    """The modules without which a command's script ends at once, by the first part of the name.

    They are those that it imports outside of functions, conditions and `try`. Nothing is run.
    """
    sources = _sources(code) if isinstance(code, Mapping) else {}
    for _, tree in _program(sources, command, {}):
        top = ast.Module([node for node in tree.body if _is_import(node)], [])
        return frozenset(module.partition(".")[0] for _, module in _imports(top))
    return frozenset()


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _find(
    sources: Mapping[str, bytes], command: Sequence[str], broken: dict[str, str]
) -> dict[str, str]:
    """Where the program first uses each framework, each key above, and what may join ranks.

    What it does not use is not in the result. `broken` gets the files that are no Python.
    """
    wanted = {**_SIGNS, _MPI_ON_CPUS: (_MPI_ON_CPUS,), _JOINS: _JOINING, _TRAINS: _TRAINING}
    used: dict[str, str] = {}
    for file, tree in _program(sources, command, broken):
        for line, module in _modules(tree):
            for name, signs in wanted.items():
                # The dots, so that `torch.distributed_x` is none of torch.distributed.
                if any(f"{module}.".startswith(f"{sign}.") for sign in signs):
                    used.setdefault(name, f"{file}:{line} uses {module}")
        if _OF_RANKS.search(sources[file]):
            used.setdefault(_JOINS, f"{file} names ranks")
        for line, module in _imports(tree):
            if not _is_known(module.partition(".")[0], sources):
                used.setdefault(_JOINS, f"{file}:{line} uses {module}, which may join ranks")
        if _STRATEGYS_VARIABLE.encode() in sources[file]:
            used.setdefault(_STRATEGYS_VARIABLE, f"{file} names {_STRATEGYS_VARIABLE}")
        for line in _mpi_backends(tree):
            used.setdefault(_BACKEND, f"{file}:{line} names the backend mpi")
        for line, key, what in sorted(_rendezvous(tree)):
            used.setdefault(key, f"{file}:{line} {what}")
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == _STRATEGY:
                used.setdefault(_STRATEGY, f"{file}:{node.lineno} uses {_STRATEGY}")
            if isinstance(node, ast.Call) and _OUTPUT not in sources[file]:
                saved = _saved_file(node)
                if saved:
                    used.setdefault(_SAVES, f"{file}:{node.lineno} saves {saved}")
    return used


def _saved_file(node: ast.Call) -> str:
    """The relative path of the file to which a call saves; empty for all else."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in _SAVING:
        return ""
    names = [each.value for each in node.args if isinstance(each, ast.Constant)]
    # Others say a format, such as "PNG".
    found = (name for name in names if isinstance(name, str) and _RELATIVE.fullmatch(name))
    return shorten(next(found, ""), _LONGEST_LINE)


def _is_known(name: str, sources: Mapping[str, bytes]) -> bool:
    """Whether a module joins no ranks by itself: Python's, the code's own, and well-known ones."""
    own = {file.partition("/")[0].removesuffix(".py") for file in sources}
    return not name or name in {*_TRAINING, *_ALONE} | own | sys.stdlib_module_names


def _of_line(used: Mapping[str, str]) -> tuple[str, str]:
    """The framework of a line of horovodrun, whose program uses these, and why.

    It is Horovod, also where the program does not name it, unless ranks need MPI besides.
    """
    mpi = used.get(_BACKEND) or used.get("mpi")
    return ("mpi", mpi) if mpi else ("horovod", _IS_LINE)


def _choose(sources: Mapping[str, bytes], used: Mapping[str, str]) -> tuple[str | None, str]:
    """The framework of a program that uses these, and why; None where nothing is sure.

    Horovod counts before the others, because its scripts use parts of those. Only a program whose
    code has no text about Horovod starts without MPI: a module may be imported by its name.
    """
    frameworks = [name for name in _SIGNS if name in used]
    if "horovod" in used:
        return "horovod", used["horovod"]
    if frameworks and _BACKEND in used:
        return "mpi", used[_BACKEND]
    if len(frameworks) != 1:
        return None, "the code does not say it"
    name = frameworks[0]
    if name in _PRELOAD:
        for file, text in sources.items():
            if b"horovod" in text.lower():
                return None, f"{file} mentions Horovod"
    return name, used[name]


def _sources(code: Mapping[str, Plain]) -> dict[str, bytes]:
    """The Python files of the chart's value `code` by their names; none where it is wrong."""
    files = code.get("files")
    sources = {}
    if isinstance(files, Mapping):
        sources = {name: text.encode() for name, text in files.items() if isinstance(text, str)}
    try:
        packed = base64.b64decode(str(code.get("archive") or ""))
        data = zlib.decompressobj(_ANY_HEADER).decompress(packed, MOST_CODE_BYTES)
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
    sources: Mapping[str, bytes], command: Sequence[str], broken: dict[str, str]
) -> Iterator[tuple[str, ast.Module]]:
    """The command's script and what it imports of the code, with their names.

    Of files that are no Python, `broken` gets what is wrong. There is nothing where the command
    names no file of the code.
    """
    modules = {name.removesuffix("/__init__.py").removesuffix(".py"): name for name in sources}
    words = [word.removeprefix("./") for word in command]
    waiting = [word for word in words if word in sources][:1]
    folder = PurePosixPath(waiting[0]).parent if waiting else PurePosixPath()
    if not waiting and "-m" in words[:-1]:
        waiting = _files_of(words[words.index("-m") + 1], [folder], modules)
    seen = {""}
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        try:
            tree = ast.parse(sources[file])
        except SyntaxError as error:
            detail = "" if error.msg == "invalid syntax" else f": {error.msg}"
            line = (error.text or "").strip()[:_LONGEST_LINE]
            shown = f": {line}" if line else ""
            broken[file] = f"{file}:{error.lineno or 1}: invalid syntax{detail}{shown}"
            continue
        except (ValueError, RecursionError):
            # The ranks will say it.
            continue
        yield file, tree
        for _, module in _modules(tree):
            own = PurePosixPath(file).parent
            # Also what another folder on Python's path would have.
            waiting += _files_of(module, [PurePosixPath(), folder, own], modules)


def _files_of(
    module: str, folders: Sequence[PurePosixPath], modules: Mapping[str, str]
) -> list[str]:
    """The files of the code that run when a module is imported: its own and its packages'.

    A module that begins with dots is relative to the last of the folders.
    """
    name = module.lstrip(".")
    level = len(module) - len(name)
    if level:
        last = folders[-1]
        folders = [last, *last.parents][level - 1 : level]
    found: list[str] = []
    for folder in folders:
        path = folder / name.replace(".", "/")
        found += [modules[str(one)] for one in (path, *path.parents) if str(one) in modules]
    return found


def _modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that a program imports or uses as an attribute of a module."""
    yield from _imports(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, f"{node.value.id}.{node.attr}"


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that a program imports.

    The name of a relative import begins with its dots.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = "." * node.level + (node.module or "")
            yield node.lineno, package
            joint = "." if node.module else ""
            yield from ((node.lineno, f"{package}{joint}{alias.name}") for alias in node.names)


def _mpi_backends(tree: ast.Module) -> Iterator[int]:
    """The lines where a program gives a function or a variable the text of the backend mpi."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call | ast.keyword | ast.Assign | ast.AnnAssign | ast.arguments):
            for given in ast.iter_child_nodes(node):
                if not isinstance(given, ast.Constant):
                    continue
                text = given.value
                # As in "cpu:mpi,cuda:nccl".
                if isinstance(text, str) and "mpi" in text.lower().replace(":", ",").split(","):
                    yield given.lineno


def _rendezvous(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """The lines that choose NCCL, or where ranks meet: the line, its key, and what it does."""
    for node in _unconditional(tree):
        if isinstance(node, ast.Assign):
            names = [_text(each.slice) for each in node.targets if isinstance(each, ast.Subscript)]
            if "MASTER_ADDR" in names and _text(node.value) in _OWN_ADDRESSES:
                yield node.lineno, _LOCAL, f"sets MASTER_ADDR to {_text(node.value)}"
        elif isinstance(node, ast.Call) and _called(node) == "init_process_group":
            given = {each.arg: each.value for each in node.keywords}
            backend, method = ([*node.args, None, None][index] for index in (0, 1))
            if _text(given.get("backend", backend)).lower() == "nccl":
                yield node.lineno, _NCCL, "chooses nccl"
            address = _text(given.get("init_method", method)).removeprefix("tcp://")
            if address.rpartition(":")[0] in _OWN_ADDRESSES:
                yield node.lineno, _LOCAL, f"lets ranks meet at {address}"


def _unconditional(tree: ast.Module) -> Iterator[ast.AST]:
    """What is in no condition, which may be that of a program without a launcher or a GPU.

    Functions are in it: most are called.
    """
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and _names(node.test, "__name__"):
            waiting += node.body
        elif not isinstance(node, ast.If | ast.IfExp | ast.Try | ast.match_case):
            yield node
            waiting += ast.iter_child_nodes(node)


def _names(test: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(test))


def _called(call: ast.Call) -> str:
    """The last part of the name of a function that is called; empty where it has none."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _text(node: ast.expr | None) -> str:
    """The text that an expression is; empty for any other one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ""
