"""Whether a rank's command may run in a fork of the warm process: the checks of the rank itself.

A rank starts cold if the fork would differ from a newly started Python for it. The log gives the
reason. warm/warm_state.py makes the checks that only the warm process can make.
"""

from __future__ import annotations

import os
import re
import sys
from collections import namedtuple

from hvd_pods.shared import files
from hvd_pods.shared.launcher_options import LAUNCHER_OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping, Sequence

# Patterns for a program's text. They are compiled on use, because most ranks need none of them.
# Libraries read these variables when they are imported or loaded, so a script sets them before
# that. The exceptions are read later, or only choose which notes TensorFlow prints.
READ_AT_IMPORT = (
    rb"(?!CUDA_VISIBLE_DEVICES|TF_CPP_|TF_FORCE_GPU_ALLOW_GROWTH)(?:PYTHON|(?:ABSL|ATEN|BLIS|CUDA|DNNL"
    rb"|GLIBC|GOMP|GOTO|GRPC|KERAS|KMP|LD|MALLOC|MKL|NPY|NUMEXPR|OMP|ONEDNN|OPENBLAS"
    rb"|PROTOCOL_BUFFERS|PYTORCH|TF|TF2|TORCH|TORCHDYNAMO|TORCHINDUCTOR|TRITON|XLA)_)\w*"
)
# A name of READ_AT_IMPORT as a string literal, or as the name of a keyword argument.
NAMES_ONE = rb"""(?:["']|[(,]\s*)(%b)(?:["']|\s*=)""" % READ_AT_IMPORT
SETS_VARIABLES = (
    rb"\bputenv\s*\(|\benvironb?\s*(?:\[[^]]*\]\s*=[^=]|\.\s*(?:setdefault|update)\s*\(|\|?=[^=])"
)
IMPORTS = rb"\b(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([\w., \t]+))"
# Words in a program that may import a module without a statement that names it.
IMPORTS_BY_CALL = (b"__import__", b"eval(", b"exec(", b"import_module", b"importlib", b"runpy")

USUAL_FOLDERS = (
    "",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
)


class ColdStart(Exception):  # noqa: N818 - not an error: the rank starts as it would without
    """The rank cannot be a fork of the warm process, for the reason in the message."""


class PythonProgram(namedtuple("PythonProgram", ["kind", "target", "arguments", "unbuffered"])):
    """The program of a Python command line: `kind` is file, module or code."""


def parse_command(command: Sequence[str]) -> PythonProgram:
    """Parse a Python command line as Python does. Raises ColdStart if a fork cannot run it."""
    words = list(command[1:])
    unbuffered = False
    while words and words[0].startswith("-") and words[0] != "-":
        letters = words.pop(0)[1:]
        while letters:
            letter = letters[0]
            letters = letters[1:]
            if letter == "u":
                unbuffered = True
            elif letter in "cm" and (letters or words):
                target = letters or words.pop(0)
                return PythonProgram(
                    "code" if letter == "c" else "module", target, words, unbuffered
                )
            else:
                raise ColdStart(f"{command[0]} has the option -{letter}")
    if not words or words[0] == "-":
        raise ColdStart(f"{command[0]} reads its program from standard input")
    script = words.pop(0)
    if not os.path.isfile(script) or script.endswith(".pyc"):
        raise ColdStart(f"{script} is not a file of Python source")
    return PythonProgram("file", script, words, unbuffered)


def check_interpreter(program: str, python: str) -> None:
    """Raise ColdStart unless `program` is `python`, the warm process's Python, in its folder."""
    path = files.which(program)
    if path is None or not _is_same(path, python):
        raise ColdStart(f"{program} is not {python}, the worker's Python")
    # The folder counts, too: Python finds its packages relative to it, even through links.
    if not _is_same(os.path.dirname(path), os.path.dirname(python)):
        raise ColdStart(f"{path} has other packages than {python}, the worker's Python")


def _is_same(path: str, other: str) -> bool:
    """Return whether both paths exist and lead to the same file.

    A script may have removed either.
    """
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def check_environment(rank: Mapping[str, str], warm: Mapping[str, str]) -> None:
    """Raise ColdStart if a variable differs that modules may have read during their import.

    Launchers and shells set some variables for each rank, which are read later
    (launcher_options.json).
    """
    rank_variables = LAUNCHER_OPTIONS["ownOfEachRank"]
    own_prefixes = tuple(rank_variables["prefixes"])
    differing = []
    for name in sorted({*rank, *warm}):
        if rank.get(name) == warm.get(name):
            continue
        if name in rank_variables["names"] or name.startswith(own_prefixes):
            continue
        if name == "LD_LIBRARY_PATH" and folders(rank) == folders(warm):
            continue
        differing.append(name)
    if differing:
        raise ColdStart(
            f"variables of the ranks differ from the worker's ({', '.join(differing[:5])}): set "
            "them in `worker.env` instead"
        )


def folders(environment: Mapping[str, str]) -> list[str]:
    """Return the folders that the loader searches for libraries before the default ones.

    Open MPI 5 puts the folder of its own libraries first. That folder may already be in the list,
    be a default one, not exist, or contain libraries that the default ones also contain, as
    Debian's does.
    """
    named = dict.fromkeys(environment.get("LD_LIBRARY_PATH", "").split(":"))
    return [path for path in named if path not in USUAL_FOLDERS and _has_others(path)]


def _has_others(folder: str) -> bool:
    """Return whether the folder has a library that the loader finds nowhere else."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return any(".so" in name and not _is_usual(folder, name) for name in names)


def _is_usual(folder: str, name: str) -> bool:
    path = os.path.join(folder, name)
    others = [os.path.join(usual, name) for usual in USUAL_FOLDERS if usual]
    return any(_is_same(path, other) for other in others)


def read_source(program: PythonProgram) -> bytes:
    """Return the program's text; empty for a module: to find it, its packages must be imported.

    Raises OSError for a file that cannot be read.
    """
    if program.kind == "module":
        return b""
    if program.kind == "file":
        return files.read(program.target)
    text: str = program.target
    return text.encode()


def imports(source: bytes) -> Iterator[tuple[int, str]]:
    """Yield the position and the top-level module of each import; "" for the program's own package.

    The position is the number of bytes before the statement.
    """
    for match in re.finditer(IMPORTS, source):
        for part in (match[1] or match[2]).split(b","):
            # Without the `as` of an import.
            name = part.strip().partition(b" ")[0]
            top = name.partition(b".")[0]
            yield match.start(), top.decode()


def check_script(program: PythonProgram, preloaded: Sequence[str]) -> None:
    """Raise ColdStart if the script sets a variable that its imports would read."""
    source = read_source(program)
    if b"environ" not in source and b"putenv" not in source:
        return
    tops = {name.partition(".")[0] for name in preloaded}
    first_import = min((at for at, top in imports(source) if top in tops), default=len(source))
    before = source[:first_import]
    if not re.search(SETS_VARIABLES, before):
        return
    name = re.search(NAMES_ONE, before)
    if name:
        line = before.count(b"\n", 0, name.start(1)) + 1
        place = f"{program.target}:{line}" if program.kind == "file" else "the program"
        raise ColdStart(f"{place} sets {name[1].decode()}: set it in `worker.env` instead")


def check_use(program: PythonProgram) -> None:
    """Raise ColdStart if the program certainly imports only the standard library.

    Such a program would wait in vain for modules that are still being imported.
    """
    source = read_source(program)
    if program.kind == "module" or any(word in source for word in IMPORTS_BY_CALL):
        return
    # Older Python releases lack the list of their modules.
    standard = {*getattr(sys, "stdlib_module_names", sys.builtin_module_names)}
    if all(top in standard for _, top in imports(source)):
        raise ColdStart("the modules are still being imported, and the program does not use them")


def check_command(
    command: Sequence[str], rank: Mapping[str, str], warm: dict[str, Any]
) -> PythonProgram:
    """Return what the command runs.

    `rank` is the rank's environment. `warm` is the worker's description: a map with `python`,
    `environment` and `modules` (worker/main.py). Raises ColdStart for a command that a fork of the
    warm process cannot run.
    """
    check_interpreter(command[0], warm["python"])
    program = parse_command(command)
    check_environment(rank, warm["environment"])
    check_script(program, warm["modules"])
    return program
