"""Packs the user's code into an archive, and unpacks it.

A worker receives the archive from the master, which runs this program there before each launch:
`code_archive.py NAME`, and `keep-packages` if packages of an earlier run may fit this one.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Mapping

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.pod import packages
from hvd_pods.shared.paths import CODE

# The key of the ConfigMap with an archive of a folder. Every other key is a file.
CODE_ARCHIVE = "archive.tgz"
# The argument after which this program keeps the packages of an earlier run.
KEEP_PACKAGES = "keep-packages"


def read_source(source: Path) -> dict[str, bytes]:
    """Return the content of a mounted ConfigMap by key. Raises OSError."""
    # The kubelet's own entries, ..data and the directory that it links to, begin with dots.
    files = (path for path in source.iterdir() if path.is_file() and not path.name.startswith(".."))
    return {file.name: file.read_bytes() for file in files}


def digest(files: Mapping[str, bytes]) -> str:
    """Return the SHA256 of `sha256sum`'s output for these files; the chart's template has it."""
    lines = [f"{sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)]
    return sha256("".join(lines).encode()).hexdigest()


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return one tar.gz of a ConfigMap's content: the archive's entries and the files.

    Raises OSError, or tarfile.TarError for an archive that cannot be read.
    """
    content = io.BytesIO()
    # mtime 0: the same code results in the same bytes.
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as archive:
        if CODE_ARCHIVE in files:
            with tarfile.open(fileobj=io.BytesIO(files[CODE_ARCHIVE])) as folder:
                for member in folder:
                    file_content = folder.extractfile(member) if member.isfile() else None
                    archive.addfile(member, file_content)
        for name in sorted(files.keys() - {CODE_ARCHIVE}):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            archive.addfile(member, io.BytesIO(files[name]))
    return content.getvalue()


def unpack(content: bytes, directory: Path) -> None:
    """Unpack a tar.gz into a directory, which is complete from the moment that it exists.

    Replace an existing directory: training code can write to it, even under the name of another
    run's code. Raises OSError, EOFError for an archive that is cut, or tarfile.TarError for one
    that cannot be read or has an entry that is not unpacked.
    """
    with tempfile.TemporaryDirectory(dir=directory.parent) as name:
        complete = Path(name) / "complete"
        complete.mkdir()
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                unpack_member(archive, member, complete)
        with contextlib.suppress(FileNotFoundError):
            if not directory.is_symlink():
                # Without this mode, the directory cannot be moved to another folder.
                directory.chmod(0o700)
            directory.rename(Path(name) / "replaced")
        complete.rename(directory)


def unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    """Write one entry of an archive. Executable files get the mode 755, other files 644.

    Raises OSError, or tarfile.TarError for an entry that would leave the directory and for one that
    is neither a file nor a directory, such as a link.
    """
    path = directory / member.name
    # tarfile's own filters are missing from older releases of Python 3.8.
    if member.name.startswith("/") or ".." in Path(member.name).parts:
        raise tarfile.TarError(f"{member.name!r} is outside the archived folder")
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    stream = archive.extractfile(member) if member.isreg() else None
    if stream is None:
        raise tarfile.TarError(f"{member.name!r} is neither a file nor a directory")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(stream.read())
    path.chmod(0o755 if member.mode & 0o111 else 0o644)


def replace(name: str, content: bytes, code: Path, *, keeps_packages: bool) -> int:
    """Unpack the code with this name below the folder `code`, and remove that of earlier runs.

    Return 1 when the code could not be unpacked, with the reason on standard error.
    """
    directory = code / name
    try:
        unpack(content, directory)
    except (OSError, tarfile.TarError, EOFError) as problem:
        print(f"cannot unpack the code in {directory}: {problem}", file=sys.stderr)
        return 1
    kept_folders = {directory}
    if keeps_packages:
        kept_folders.add(code / packages.PACKAGES_FOLDER.name)
    for other in code.iterdir():
        if other not in kept_folders:
            shutil.rmtree(other, ignore_errors=True)
    return 0


def main() -> int:
    """Replace the code on a worker by that on standard input."""
    keeps = KEEP_PACKAGES in sys.argv[2:]
    return replace(sys.argv[1], sys.stdin.buffer.read(), Path(CODE), keeps_packages=keeps)


if __name__ == "__main__":
    sys.exit(main())
