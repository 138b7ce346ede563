"""Find the files of a run's code that its command runs, and their imports. Runs nothing. Pure."""

from __future__ import annotations

import ast
import base64
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import decode_source
from itertools import pairwise
from pathlib import PurePosixPath

from hvdchart.chart_files import MAX_CODE_BYTES
from hvdchart.spec.yaml_tree import Plain

# Characters of a line in a message.
MAX_SHOWN_LINE_CHARACTERS = 80
# For zlib: the largest window, and either header, of gzip or zlib.
_ANY_HEADER_WINDOW_BITS = 32 + 15


def used_modules(code: Plain, command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the imports of a command's program, each with its place: ("train.py:1", "torch").

    `code` is the chart's value of that name. Nothing is run.
    """
    sources = sources_of(code)
    for file, tree in program_files(sources, command, {}):
        for line, module in imports_of(tree):
            yield f"{file}:{line}", module


def needed_modules(code: Plain, command: Sequence[str]) -> frozenset[str]:
    """Return the modules without which a command's script fails at once, by their top-level names.

    These are its imports outside of functions, conditions and `try`. Nothing is run.
    """
    sources = sources_of(code)
    for _, tree in program_files(sources, command, {}):
        top = ast.Module([node for node in tree.body if _is_import(node)], [])
        return frozenset(module.partition(".")[0] for _, module in imports_of(top))
    return frozenset()


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def sources_of(code: Plain) -> dict[str, bytes]:
    """Return the Python files of the chart's value `code` by name; none if the value is wrong."""
    if not isinstance(code, Mapping):
        return {}
    files = code.get("files")
    sources = {}
    if isinstance(files, Mapping):
        sources = {name: text.encode() for name, text in files.items() if isinstance(text, str)}
    try:
        packed = base64.b64decode(str(code.get("archive") or ""))
        data = zlib.decompressobj(_ANY_HEADER_WINDOW_BITS).decompress(packed, MAX_CODE_BYTES)
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content and member.name.endswith(".py"):
                    sources[member.name.removeprefix("./")] = content.read()
    except (ValueError, zlib.error, tarfile.TarError, EOFError):
        # There is no archive, or the pods will report its problem.
        return sources
    return sources


def _parse(file: str, source: bytes, broken: dict[str, str]) -> ast.Module | None:
    """Return the syntax tree of a file; None, and usually a problem in `broken`, if it has none."""
    try:
        text = decode_source(source)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        broken[file] = f"{file}: cannot be decoded: {error}: save it as UTF-8"
        return None
    try:
        return ast.parse(text)
    except SyntaxError as error:
        detail = "" if error.msg == "invalid syntax" else f": {error.msg}"
        line = (error.text or "").strip()[:MAX_SHOWN_LINE_CHARACTERS]
        shown = f": {line}" if line else ""
        broken[file] = f"{file}:{error.lineno or 1}: invalid syntax{detail}{shown}"
    except (RecursionError, MemoryError):
        broken[file] = f"{file}: nested too deep for Python"
    except ValueError:
        # The ranks report the error.
        pass
    return None


def program_files(
    sources: Mapping[str, bytes], command: Sequence[str], broken: dict[str, str]
) -> Iterator[tuple[str, ast.Module]]:
    """Yield the command's script and the modules that it imports of the code, by name.

    `broken` gets the problems of files that are no Python. Returns nothing if the command names no
    file of the code.
    """
    modules = {name.removesuffix("/__init__.py").removesuffix(".py"): name for name in sources}
    words = [word.removeprefix("./") for word in command]
    waiting = [word for word in words if word in sources][:1]
    folder = PurePosixPath(waiting[0]).parent if waiting else PurePosixPath()
    for option, module in pairwise(words):
        if option == "-m" and not waiting:
            # Python runs __main__ of a package.
            waiting = _files_of(module, [folder], modules)
            waiting += _files_of(f"{module}.__main__", [folder], modules)
    seen = {""}
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        tree = _parse(file, sources[file], broken)
        if tree is None:
            continue
        yield file, tree
        for _, module in modules_of(tree):
            parent = PurePosixPath(file).parent
            # Search the other folders on Python's path, too.
            waiting += _files_of(module, [PurePosixPath(), folder, parent], modules)


def _files_of(
    module: str, folders: Sequence[PurePosixPath], modules: Mapping[str, str]
) -> list[str]:
    """Return the files of the code that run when a module is imported: its own and its packages'.

    A module that starts with dots is relative to the last of the folders.
    """
    name = module.lstrip(".")
    level = len(module) - len(name)
    if level:
        last = folders[-1]
        folders = [last, *last.parents][level - 1 : level]
    files: list[str] = []
    for folder in folders:
        path = folder / name.replace(".", "/")
        files += [
            modules[str(parent)] for parent in (path, *path.parents) if str(parent) in modules
        ]
    return files


def modules_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and dotted name of each import, and of each module attribute in use."""
    yield from imports_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, f"{node.value.id}.{node.attr}"


def imports_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and dotted name of each import of a program.

    The name of a relative import starts with its dots.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = "." * node.level + (node.module or "")
            yield node.lineno, package
            joint = "." if node.module else ""
            yield from ((node.lineno, f"{package}{joint}{alias.name}") for alias in node.names)
