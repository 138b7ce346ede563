"""Pack a script or a folder into the chart's value `code`."""

from __future__ import annotations

import base64
import gzip
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

from pathspec import GitIgnoreSpec

from hvdchart.chart_files import MAX_CODE_BYTES, read_data
from hvdchart.errors import FileError
from hvdchart.files import read_patterns
from hvdchart.quantity import pluralize
from hvdchart.spec.yaml_tree import Plain
from hvdchart.text import join_names

OWN_IGNORE_FILE = ".hvdignore"
IGNORE_FILES = (".gitignore", OWN_IGNORE_FILE)
# Files that no training reads: version control, caches of Python and of its tools, environments.
ALWAYS_IGNORED = (
    ".git/",
    ".hg/",
    ".svn/",
    "__pycache__/",
    "*.pyc",
    ".ipynb_checkpoints/",
    ".venv/",
    "venv/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
)
# Files in which tools keep passwords, tokens and private keys; the names are compared in lower
# case.
SECRET_PATTERNS = (
    ".env",
    ".env.*",
    "!.env.example",
    "!.env.sample",
    "!.env.template",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".pypirc",
    ".npmrc",
    ".git-credentials",
    ".boto",
    ".databrickscfg",
    ".s3cfg",
    ".vault-token",
    "application_default_credentials.json",
    "credentials.json",
    "kaggle.json",
    "kubeconfig",
    "*.kubeconfig",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "!id_*.pub",
    ".ssh/",
    ".aws/",
    ".azure/",
    ".docker/",
    ".gnupg/",
    ".kube/",
)
# The patterns of a folder's ignore file, which are relative to it.
_Rules: TypeAlias = tuple[Path, GitIgnoreSpec]
Report: TypeAlias = Callable[[str], object]
# The maximum number of files in a message.
_MAX_NAMED_FILES = 3
_SECRET_FILES = GitIgnoreSpec.from_lines(SECRET_PATTERNS)
# Opening a pipe in place of a file would block.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def pack_code(path: Path, report: Report = lambda line: None) -> dict[str, Plain]:
    """Return the chart's value `code` for a script or a folder.

    A script in UTF-8 is an entry of `code.files`. An executable script is an archive, which keeps
    its mode, and so is a script in another coding. A folder is an archive of the files that
    `list_files` returns. The same content gives the same value, at any time. `report` gets a line
    about the secrets that are left out. Raises FileError for files that cannot be read, for a
    script that is a link out of its folder, and for code that is larger than the chart takes.
    """
    if path.is_dir():
        files = list_files(path, report)
        if not files:
            raise FileError(f"{path}: has no file that is not ignored")
        return {"archive": pack_files(path, files)}
    try:
        real = path.resolve(strict=True)
        folder = path.parent.resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError) as error:
        raise FileError(f"{path}: cannot read the code: {error}") from error
    if not real.is_relative_to(folder):
        raise FileError(
            f"{path}: is a link to {real}, which is outside its folder; name that file instead"
        )
    if mode & 0o111 and stat.S_ISREG(mode):
        return {"archive": pack_files(path, {path.name: real})}
    most = int(read_data("resources.json")["codeBytes"])
    with _open(real) as (file, status):
        # A script in another coding is compressed, and may be larger than the chart takes.
        data = file.read(4 * most + 1)
    sizes = {str(path): status.st_size}
    if len(data) > 4 * most:
        raise _too_large(path, sizes)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return {"archive": pack_files(path, {path.name: real})}
    if len(data) > most:
        raise _too_large(path, sizes)
    return {"files": {path.name: text}}


def pack_files(origin: Path, files: Mapping[str, Path]) -> str:
    """Return a tar.gz in base64 of files by their names in it; equal files give equal text.

    Raises FileError for a file that cannot be read, for a link, for anything else that is no
    regular file, and, with the name of `origin`, for more files than the chart takes.
    """
    content = io.BytesIO()
    most = int(read_data("resources.json")["codeBytes"])
    sizes = {str(file): _size(file) for file in files.values()}
    # Refuse a data set in the folder before reading any of it.
    if sum(sizes.values()) > MAX_CODE_BYTES:
        raise _too_large(origin, sizes)
    # Leave out the times, so that equal files give equal bytes.
    with (
        gzip.GzipFile(fileobj=content, mode="wb", mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, file in files.items():
            _add(archive, file, name)
            if content.tell() * 4 // 3 > most:
                raise _too_large(origin, sizes)
    text = base64.b64encode(content.getvalue()).decode()
    if len(text) > most:
        raise _too_large(origin, sizes)
    return text


def list_files(folder: Path, report: Report = lambda line: None) -> dict[str, Path]:
    """Return the real path of each file of a folder that is not ignored, by its name in the folder.

    Names that usually hold secrets are also left out, unless a line of .hvdignore includes them by
    their name (`!.env`); `report` gets a line about them. A link stands for its target, which must
    be in the result itself. Raises FileError for a folder that cannot be read, for an invalid
    pattern, for any other link, and for anything that is neither a file nor a folder.
    """
    try:
        root = folder.resolve(strict=True)
        secrets: list[Path] = []
        rules = [(root, GitIgnoreSpec.from_lines(ALWAYS_IGNORED))]
        paths = sorted(_walk(root, rules, [], secrets))
        files = {path.relative_to(root).as_posix(): path for path in paths}
        inside = {path for path in paths if not path.is_symlink()}
        for name, path in files.items():
            if path not in inside:
                files[name] = _target(folder / name, path, inside)
    except OSError as error:
        raise FileError(f"{error.filename}: cannot read the code: {error.strerror}") from error
    if secrets:
        names = join_names(path.relative_to(root).as_posix() for path in secrets)
        report(
            f"{folder}: {names}: left out of the code, because such names usually hold secrets; a "
            "line of .hvdignore hands one out (!NAME)"
        )
    return files


def _target(shown: Path, link: Path, inside: AbstractSet[Path]) -> Path:
    """Return the target file of a link; raise FileError unless it is one of those `inside`."""
    try:
        real = link.resolve(strict=True)
    except RuntimeError as error:
        # Python up to 3.12 raises this for a loop.
        raise FileError(f"{shown}: cannot read the code: {error}") from error
    if real not in inside:
        raise FileError(
            f"{shown}: is a link to {real}, which is not one of the files of the code; put a copy "
            "in its place, or add it to .hvdignore"
        )
    return real


def _walk(
    folder: Path, rules: list[_Rules], asked: list[_Rules], secrets: list[Path]
) -> Iterator[Path]:
    """Yield the files and links below a folder. Raises FileError.

    `rules` are the patterns of the folders above it. `asked` are the names of secrets that these
    patterns include. Adds the secrets that are left out.
    """
    for name in IGNORE_FILES:
        file = folder / name
        # Like git, ignore patterns in a file that is a link.
        if file.is_file() and not file.is_symlink():
            lines = file.read_text("utf-8", "surrogateescape").splitlines()
            rules = [*rules, (folder, read_patterns(file, lines))]
            if name == OWN_IGNORE_FILE:
                asked = [*asked, (folder, _names_taken_back(lines))]
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = folder / entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if _is_named(path, rules, is_folder=is_folder):
                continue
            is_secret = _is_secret(path.name, is_folder=is_folder)
            if is_secret and not _is_named(path, asked, is_folder=is_folder):
                secrets.append(path)
                continue
            if is_folder:
                yield from _walk(path, rules, asked, secrets)
            elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                yield path
            else:
                raise FileError(f"{path}: is neither a file nor a folder; add it to .hvdignore")


def _is_secret(name: str, *, is_folder: bool) -> bool:
    return bool(_SECRET_FILES.check_file(name.lower() + ("/" if is_folder else "")).include)


def _names_taken_back(lines: Sequence[str]) -> GitIgnoreSpec:
    """Return the names in lines such as `!.env` and `!certs/ca.pem`; a pattern (`!*`) has none."""
    names = (line[1:] for line in lines if line.startswith("!"))
    return GitIgnoreSpec.from_lines(name for name in names if not set("*?[") & set(name))


def _is_named(path: Path, rules: list[_Rules], *, is_folder: bool) -> bool:
    """Return whether patterns match a path; the last pattern that matches decides, as in git.

    The patterns of inner folders come last.
    """
    for folder, patterns in reversed(rules):
        name = path.relative_to(folder).as_posix() + ("/" if is_folder else "")
        verdict = patterns.check_file(name).include
        if verdict is not None:
            return verdict
    return False


def _size(file: Path) -> int:
    """Return the bytes of a regular file. Raises FileError."""
    try:
        return file.lstat().st_size
    except OSError as error:
        raise FileError(f"{file}: cannot read the code: {error.strerror}") from error


@contextmanager
def _open(file: Path) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """Open a regular file; return it and its status. Raises FileError."""
    try:
        with os.fdopen(os.open(file, _OPEN), "rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise FileError(f"{file}: is no regular file; put a copy in its place")
            yield opened, status
    except OSError as error:
        raise FileError(f"{file}: cannot read the code: {error.strerror or error}") from error


def _add(archive: tarfile.TarFile, file: Path, name: str) -> None:
    """Archive a file without its owner and time, which do not belong to the code."""
    with _open(file) as (opened, status):
        member = tarfile.TarInfo(name)
        member.size = status.st_size
        member.mode = 0o755 if status.st_mode & 0o111 else 0o644
        archive.addfile(member, opened)


def _too_large(path: Path, sizes: Mapping[str, int]) -> FileError:
    """Return an error that names the largest files."""
    most = int(read_data("resources.json")["codeBytes"])
    ordered = sorted(((size, name) for name, size in sizes.items()), reverse=True)
    largest = ", ".join(f"{name} ({size // 1000} kB)" for size, name in ordered[:_MAX_NAMED_FILES])
    total = sum(sizes.values()) // 1000
    return FileError(
        f"{path}: the code has more than {most} bytes in base64, which is what the chart "
        f"takes. It has {pluralize(len(sizes), 'file')} of {total} kB; the largest "
        f"are {largest}: name what no training needs in .hvdignore, or put it into the image or "
        "onto a volume"
    )
