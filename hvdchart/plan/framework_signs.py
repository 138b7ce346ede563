"""Find signs in the text of a program: how its ranks connect, train and save. Pure."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hvdchart.plan.user_code import MAX_SHOWN_LINE_CHARACTERS, imports_of, modules_of, program_files
from hvdchart.spec.yaml_tree import shorten

# A program that uses one of these modules reduces with the framework.
FRAMEWORK_MODULES = {
    "horovod": ("horovod",),
    "torch": ("torch.distributed", "accelerate", "deepspeed", "lightning", "pytorch_lightning"),
    "jax": ("jax.distributed", "keras.distribution"),
    "mpi": ("mpi4py",),
}
# A module that prefers MPI to Gloo on CPUs if PyTorch was compiled with MPI.
_MPI_ON_CPUS = "accelerate"
# Modules that a training needs to be one of many ranks, and modules that train, possibly alone.
_JOINING_MODULES = (
    *(sign for signs in FRAMEWORK_MODULES.values() for sign in signs),
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
_TRAINING_MODULES = ("torch", "tensorflow", "keras", "tf_keras", "jax", "flax")
# Other modules that do not connect ranks. A module that is in no list here may do so.
_NEUTRAL_MODULES = (
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
# A program that contains one of these names may divide its work itself, or import by name a module
# that connects ranks.
_OF_RANKS = re.compile(
    rb"\b(?:(?:LOCAL|NODE|GROUP|PMI|OMPI_\w+)_)?RANK\b"
    rb"|WORLD_SIZE|PROCESS_ID|NUM_PROCESSES|[Hh]orovod|torch\.distributed|torchrun"
)
# TensorFlow's strategy for many machines, and the variable that it reads the machines from.
_STRATEGY = "MultiWorkerMirroredStrategy"
STRATEGYS_VARIABLE = "TF_CONFIG"
_OWN_ADDRESSES = ("localhost", "127.0.0.1", "[::1]", "::1")
# The functions that save to a file, and the pattern of a path in the pod: it is no URL.
_SAVING = ("save", "save_model", "save_pretrained", "save_weights")
_RELATIVE = re.compile(r"(?![A-Za-z][-+.\w]*://)[^/\s][^\n]*[./][^\n]*")
# A file that contains this name saves to the path in it.
_OUTPUT_PATH = b"OUTPUT_PATH"


class Use(NamedTuple):
    """A module that a file uses, and the place of its first use, such as `train.py:1`."""

    place: str
    module: str

    def __str__(self) -> str:
        return f"{self.place} uses {self.module}"


@dataclass
class Signs:
    """The modules and names that a program uses, each with the place of its first use.

    An empty text and None stand for a missing sign.
    """

    # By the framework that the ranks reduce with.
    frameworks: dict[str, Use] = field(default_factory=dict)
    # Code that connects a rank to others, or may do so.
    joined_by: str = ""
    trains: Use | None = None
    # TensorFlow's strategy, and whether a file names the variable that it needs.
    strategy: Use | None = None
    names_strategys_variable: bool = False
    # A line that chooses the backend mpi, and a module that prefers MPI on CPUs.
    mpi_backend: str = ""
    prefers_mpi: Use | None = None
    # Lines that choose NCCL, lines that let ranks connect to an address of their own, and lines
    # that save to a file of the pod.
    nccl: str = ""
    meets_locally: str = ""
    saves_in_pod: str = ""
    # The problems of files that are no Python of this version, by name.
    broken: dict[str, str] = field(default_factory=dict)


def find_signs(sources: Mapping[str, bytes], command: Sequence[str]) -> Signs:
    """Find the signs in a command's script, and in the modules of the code that it imports.

    sources: the Python files of the code by their names.
    """
    signs = Signs()
    for file, tree in program_files(sources, command, signs.broken):
        text = sources[file]
        _add_modules(signs, file, tree, sources)
        if _OF_RANKS.search(text):
            signs.joined_by = signs.joined_by or f"{file} names ranks"
        if STRATEGYS_VARIABLE.encode() in text:
            signs.names_strategys_variable = True
        for line in _mpi_backends(tree):
            signs.mpi_backend = signs.mpi_backend or f"{file}:{line} names the backend mpi"
        _add_rendezvous(signs, file, tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == _STRATEGY:
                signs.strategy = signs.strategy or Use(f"{file}:{node.lineno}", _STRATEGY)
            if isinstance(node, ast.Call) and not signs.saves_in_pod and _OUTPUT_PATH not in text:
                saved = _find_saved_file(node)
                signs.saves_in_pod = f"{file}:{node.lineno} saves {saved}" if saved else ""
    return signs


def _add_modules(signs: Signs, file: str, tree: ast.Module, sources: Mapping[str, bytes]) -> None:
    for line, module in modules_of(tree):
        use = Use(f"{file}:{line}", module)
        for name, members in FRAMEWORK_MODULES.items():
            if _is_one_of(module, members):
                signs.frameworks.setdefault(name, use)
        if _is_one_of(module, (_MPI_ON_CPUS,)):
            signs.prefers_mpi = signs.prefers_mpi or use
        if _is_one_of(module, _JOINING_MODULES):
            signs.joined_by = signs.joined_by or str(use)
        if _is_one_of(module, _TRAINING_MODULES):
            signs.trains = signs.trains or use
    for line, module in imports_of(tree):
        if not _is_known(module.partition(".")[0], sources):
            use = Use(f"{file}:{line}", module)
            signs.joined_by = signs.joined_by or f"{use}, which may join ranks"


def _is_one_of(module: str, members: Sequence[str]) -> bool:
    # The dots prevent that `torch.distributed_x` counts as a part of torch.distributed.
    return any(f"{module}.".startswith(f"{member}.") for member in members)


def _find_saved_file(node: ast.Call) -> str:
    """Return the relative path of the file to which a call saves; empty for any other call."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in _SAVING:
        return ""
    names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    # Other texts are a format, such as "PNG".
    relative = (name for name in names if isinstance(name, str) and _RELATIVE.fullmatch(name))
    return shorten(next(relative, ""), MAX_SHOWN_LINE_CHARACTERS)


def _is_known(name: str, sources: Mapping[str, bytes]) -> bool:
    """Return whether a module cannot connect ranks: Python's, own and well-known modules."""
    users_modules = {file.partition("/")[0].removesuffix(".py") for file in sources}
    return (
        not name
        or name in {*_TRAINING_MODULES, *_NEUTRAL_MODULES} | users_modules | sys.stdlib_module_names
    )


def _mpi_backends(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that pass or assign the text of the backend mpi."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call | ast.keyword | ast.Assign | ast.AnnAssign | ast.arguments):
            constants = (
                child for child in ast.iter_child_nodes(node) if isinstance(child, ast.Constant)
            )
            yield from (constant.lineno for constant in constants if _names_mpi(constant.value))


def _names_mpi(value: object) -> bool:
    """Return whether a value is a text that names the backend mpi, such as cpu:mpi,cuda:nccl."""
    return isinstance(value, str) and "mpi" in value.lower().replace(":", ",").split(",")


def _add_rendezvous(signs: Signs, file: str, tree: ast.Module) -> None:
    """Add the first line that chooses NCCL, and the first that sets the address for ranks."""
    for node in sorted(_unconditional(tree), key=lambda node: getattr(node, "lineno", 0)):
        if isinstance(node, ast.Assign):
            names = [
                _text(node_part.slice)
                for node_part in node.targets
                if isinstance(node_part, ast.Subscript)
            ]
            if "MASTER_ADDR" in names and _text(node.value) in _OWN_ADDRESSES:
                sign = f"{file}:{node.lineno} sets MASTER_ADDR to {_text(node.value)}"
                signs.meets_locally = signs.meets_locally or sign
        elif isinstance(node, ast.Call) and _find_called_name(node) == "init_process_group":
            arguments = {node_part.arg: node_part.value for node_part in node.keywords}
            backend, method = ([*node.args, None, None][index] for index in (0, 1))
            if _text(arguments.get("backend", backend)).lower() == "nccl":
                signs.nccl = signs.nccl or f"{file}:{node.lineno} chooses nccl"
            address = _text(arguments.get("init_method", method)).removeprefix("tcp://")
            if address.rpartition(":")[0] in _OWN_ADDRESSES:
                sign = f"{file}:{node.lineno} lets ranks meet at {address}"
                signs.meets_locally = signs.meets_locally or sign


def _unconditional(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield code outside of conditions: a condition may check for a launcher or a GPU.

    The code of functions is included: most functions are called.
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


def _find_called_name(call: ast.Call) -> str:
    """Return the last part of the name of a called function; empty if it has none."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _text(node: ast.expr | None) -> str:
    """Return the text of a text expression; empty for any other expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ""
