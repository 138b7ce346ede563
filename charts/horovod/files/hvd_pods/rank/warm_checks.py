"""Whether a rank's command may run in a fork of the warm process: what the rank itself checks.

A rank that would not see the same world as a newly started Python starts cold, for a reason that
the log gives. warm/state.py checks what only the warm process can tell.
"""

from __future__ import annotations

import os
import sys
from collections import namedtuple

from hvd_pods.common import fast_start
from hvd_pods.common.launcher_options import LAUNCHER_OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

# Libraries read these when they are imported or loaded, so a script that sets one does it before.
READ_AT_IMPORT = (
    *("ABSL_", "ATEN_", "BLIS_", "CUDA_", "DNNL_", "GLIBC_", "GOMP_", "GOTO_", "GRPC_", "KERAS_"),
    *("KMP_", "LD_", "MALLOC_", "MKL_", "NPY_", "NUMEXPR_", "OMP_", "ONEDNN_", "OPENBLAS_"),
    *("PROTOCOL_BUFFERS_", "PYTHON", "PYTORCH_", "TF_", "TF2_", "TORCH_", "XLA_"),
)
# Variables among these that are read later, or only choose which notes TensorFlow prints.
READ_LATER = ("CUDA_VISIBLE_DEVICES", "TF_CPP_", "TF_FORCE_GPU_ALLOW_GROWTH")

# Words in a program that may import a module which no statement of it names.
IMPORTS_BY_CALL = (b"__import__", b"eval(", b"exec(", b"import_module", b"importlib", b"runpy")

USUAL_FOLDERS = (
    *("", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"),
    *("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"),
)


class ColdStart(Exception):  # noqa: N818 - not an error: the rank starts as it would without
    """The rank cannot be a fork of the warm process, for the reason in the message."""


class Program(namedtuple("Program", ["kind", "target", "arguments", "unbuffered"])):
    """What a Python command line runs: `kind` is file, module or code."""


def parse_command(command: Sequence[str]) -> Program:
    """Parse a Python command line as Python does. Raises ColdStart for what a fork cannot do."""
    words = list(command[1:])
    unbuffered = False
    while words and words[0].startswith("-") and words[0] != "-":
        letters = words.pop(0)[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter == "u":
                unbuffered = True
            elif letter in "cm" and (letters or words):
                target = letters or words.pop(0)
                return Program("code" if letter == "c" else "module", target, words, unbuffered)
            else:
                raise ColdStart(f"{command[0]} has the option -{letter}")
    if not words or words[0] == "-":
        raise ColdStart(f"{command[0]} reads its program from standard input")
    script = words.pop(0)
    if not os.path.isfile(script) or script.endswith(".pyc"):
        raise ColdStart(f"{script} is not a file of Python source")
    return Program("file", script, words, unbuffered)


def check_interpreter(program: str, python: str) -> None:
    """Raise ColdStart unless `program` is the Python of the warm process.

    The folder counts, too: Python finds its packages from there, through links as well.
    """
    path = fast_start.which(program)
    if path is None or not os.path.samefile(path, python):
        raise ColdStart(f"{program} is not {python}, the worker's Python")
    if not os.path.samefile(os.path.dirname(path), os.path.dirname(python)):
        raise ColdStart(f"{path} has other packages than {python}, the worker's Python")


def check_environment(rank: Mapping[str, str], warm: Mapping[str, str]) -> None:
    """Raise ColdStart when a variable differs that modules may have read when they were imported.

    Launchers, SSH and shells set some for each rank, which are read later.
    """
    own = LAUNCHER_OPTIONS["ownOfEachRank"]
    differing = [
        name
        for name in sorted({*rank, *warm})
        if rank.get(name) != warm.get(name)
        and name not in own["names"]
        and not name.startswith(tuple(own["prefixes"]))
        and not (name == "LD_LIBRARY_PATH" and folders(rank) == folders(warm))
    ]
    if differing:
        raise ColdStart(
            f"variables of the ranks differ from the worker's ({', '.join(differing[:5])}): set "
            "them in worker.env instead"
        )


def folders(environment: Mapping[str, str]) -> list[str]:
    """The folders in which libraries are looked for before the usual ones.

    Open MPI 5 puts the folder of its own libraries in front, which may be there already, be one of
    the usual ones or not exist.
    """
    named = dict.fromkeys(environment.get("LD_LIBRARY_PATH", "").split(":"))
    return [path for path in named if path not in USUAL_FOLDERS and os.path.isdir(path)]


def read_source(program: Program) -> bytes:
    """The program's text; none of a module, which is found only by importing its packages."""
    if program.kind == "module":
        return b""
    return fast_start.read(program.target) if program.kind == "file" else program.target.encode()


def check_script(program: Program, preloaded: Sequence[str]) -> None:
    """Raise ColdStart when the script sets a variable that its imports would read."""
    source = read_source(program)
    if b"environ" not in source and b"putenv" not in source:
        return
    # Imported here because most scripts do not set variables.
    from hvd_pods.rank import script_text

    text = script_text.parse(source)
    tops = {name.partition(".")[0] for name in preloaded}
    imported = min((line for line, top in script_text.imports(text) if top in tops), default=None)
    for line, name in script_text.variables(text):
        read = name.startswith(READ_AT_IMPORT) and not name.startswith(READ_LATER)
        if read and (imported is None or line < imported):
            where = f"{program.target}:{line}" if program.kind == "file" else "the program"
            raise ColdStart(f"{where} sets {name}: set it in worker.env instead")


def check_use(program: Program) -> None:
    """Raise ColdStart when the program is sure to import nothing but the standard library.

    It would wait in vain for modules that are still being imported.
    """
    source = read_source(program)
    if program.kind == "module" or any(word in source for word in IMPORTS_BY_CALL):
        return
    from hvd_pods.rank import script_text

    # Older releases do not know the names of their modules.
    standard = {*getattr(sys, "stdlib_module_names", sys.builtin_module_names)}
    if all(top in standard for _, top in script_text.imports(script_text.parse(source))):
        raise ColdStart("the modules are still being imported, and the program does not use them")


def check(command: Sequence[str], rank: Mapping[str, str], warm: dict[str, Any]) -> Program:
    """What the command runs; `warm` describes the warm process. Raises ColdStart."""
    check_interpreter(command[0], warm["python"])
    program = parse_command(command)
    check_environment(rank, warm["environment"])
    check_script(program, warm["modules"])
    return program
