"""Write the archive that the chart sends to pods: charts/horovod/charts/programs (ADR 27).

It contains the programs without comments and docstrings. Lines keep their numbers, so that a
traceback of a pod names the lines of the sources.
"""

from __future__ import annotations

import ast
import gzip
import io
import json
import sys
import tarfile
import tokenize
import zlib
from pathlib import Path

import yaml

from devtools.common.repository import CHART
from devtools.pods.program_copies import POD_PROGRAMS
from hvdchart.files import write_atomically

PROGRAMS_ARCHIVE = CHART / "charts" / "programs" / "programs.tgz"
# The templates put shell scripts into the commands of containers, because an image may lack Python.
SUFFIXES = (".py", ".json")
VERSION = """\
The programs of the pods, of version {version} of the chart horovod.
They have no comments and docstrings, and are indented by one space for each level. Each line has
the number that it has in the sources, which are in charts/horovod/files/hvd_pods of the chart's
repository, and in the wheel of hvdchart.
"""
# Tokens that are not part of a statement.
LAYOUT = {tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER}
_Documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _docstring(node: ast.AST) -> ast.Expr | None:
    """Return the statement that is the docstring of a node; None without one."""
    if not isinstance(node, _Documented) or not node.body:
        return None
    first = node.body[0]
    if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
        return None
    return first if isinstance(first.value.value, str) else None


def _instructions(text: str) -> str:
    """Return the syntax tree of a program without docstrings, with the lines of all statements."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        docstring = _docstring(node)
        if docstring and isinstance(node, _Documented):
            place = ast.Pass(lineno=docstring.lineno, col_offset=docstring.col_offset)
            node.body[:1] = [] if len(node.body) > 1 else [place]
    for node in ast.walk(tree):
        # Without its docstring, a class or a function may end earlier, and columns differ.
        for name in {"col_offset", "end_lineno", "end_col_offset"} & {*node._attributes}:
            setattr(node, name, 0)
    return ast.dump(tree, include_attributes=True)


def _indent(text: str) -> str:
    """Return a program that is indented by one space for each level, and not within a statement."""
    lines = io.StringIO(text).readlines()
    levels = dict.fromkeys(range(1, len(lines) + 1), 0)
    level = 0
    is_first = True
    for token in tokenize.generate_tokens(iter(lines).__next__):
        level += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
        if token.type == tokenize.NEWLINE:
            is_first = True
        elif token.type not in LAYOUT:
            if is_first:
                levels[token.start[0]] = level
            is_first = False
            # Keep the lines of a string unchanged.
            for row in range(token.start[0] + 1, token.end[0] + 1):
                levels.pop(row, None)
    for row, level in levels.items():
        lines[row - 1] = " " * level + lines[row - 1].lstrip(" ")
    return "".join(lines)


def strip(text: str) -> str:
    """Return a program without its comments and docstrings, with little indentation. Its statements
    keep their lines.

    Raises SyntaxError for text that is no Python, and ValueError when anything else would change.
    """
    lines = io.StringIO(text).readlines()
    for node in ast.walk(ast.parse(text)):
        docstring = _docstring(node)
        if docstring and isinstance(node, _Documented):
            end = docstring.end_lineno or docstring.lineno
            instead = f"{' ' * docstring.col_offset}pass\n" if len(node.body) == 1 else "\n"
            lines[docstring.lineno - 1] = instead
            lines[docstring.lineno : end] = ["\n"] * (end - docstring.lineno)
    for token in tokenize.generate_tokens(iter(lines).__next__):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = f"{lines[row - 1][:column].rstrip()}\n"
    code = _indent("".join(lines))
    if _instructions(code) != _instructions(text):
        raise ValueError("without its comments and docstrings, it is another program")
    return code


def shorten(text: str) -> str:
    """Return JSON without spaces, line ends, and `about`, which explains it to readers.

    Raises ValueError for text that is no JSON.
    """
    document = json.loads(text)
    if isinstance(document, dict):
        document.pop("about", None)
    return json.dumps(document, separators=(",", ":"))


def contents() -> dict[str, bytes]:
    """Return the files of the archive by name, in the order of the archive.

    The compression finds repetitions in the preceding 32 kB of a file. So the JSON files come
    first, and the programs of a folder are sorted with the longest first.

    Raises ValueError, with the file's name, for a program that `strip` refuses.
    """
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    version = {"VERSION": VERSION.format(version=chart["version"]).encode()}
    files = {}
    for path in sorted(POD_PROGRAMS.glob("*/**/*")):
        if path.suffix not in SUFFIXES:
            continue
        text = path.read_text("utf-8")
        try:
            code = strip(text) if path.suffix == ".py" else shorten(text)
        except (SyntaxError, ValueError) as problem:
            raise ValueError(f"{path}: {problem}") from problem
        files[path.relative_to(POD_PROGRAMS).as_posix()] = code.encode()

    def place(file: tuple[str, bytes]) -> tuple[bool, str, int]:
        name, content = file
        return name.endswith(".py"), name.partition("/")[0], -len(content)

    return {**version, **dict(sorted(files.items(), key=place))}


def pack(files: dict[str, bytes]) -> bytes:
    """Archive files in the order given.

    Times and owners are left out, so that equal files give equal archives. The archive is one
    stream, which is a fifth smaller than a zip.
    """
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(stream.getvalue(), 9, mtime=0)


def read(archive: bytes) -> dict[str, bytes]:
    """Return the files of an archive by name, in its order; none when it cannot be read."""
    files = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
            for member in opened:
                file = opened.extractfile(member)
                files[member.name] = file.read() if file else b""
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        return {}
    return files


def write_or_compare(arguments: list[str], archive: Path = PROGRAMS_ARCHIVE) -> int:
    """Write the archive when its files differ from the programs.

    Only the files count: another version of zlib compresses differently. With `--check` print the
    names of files that differ, and return 1.
    """
    files = contents()
    old = read(archive.read_bytes()) if archive.is_file() else {}
    if list(files.items()) == list(old.items()):
        return 0
    if "--check" not in arguments:
        write_atomically(archive, pack(files))
        print(f"wrote {archive}")
        return 0
    names = [name for name in {**old, **files} if old.get(name) != files.get(name)]
    sys.stderr.write(f"{archive}: {', '.join(names)}: differ from the sources: `make generate`\n")
    return 1
