"""The user's code: the master hands it to the workers, so that changed code needs no new image.

The chart mounts the code into the master only. A worker gets it over SSH before the ranks start, in
a directory that is named after its content, so that workers need not be replaced for it.
"""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Mapping

sys.path.insert(0, str(Path(__file__).resolve().parent))
import remote
from settings import CODE, CODE_SOURCE, ConfigurationError, Host, RunError, log

# The key of the ConfigMap with an archive of a folder. Every other key is a file.
ARCHIVE = "archive.tgz"
# Seconds in which a host has to take the code, which is at most one MiB.
DELIVERY_TIMEOUT = 60.0


class UserCode:
    """The code of a run, which its `name` identifies; without a name the run has no code."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._content = b""
        self._delivered: dict[Host, str] = {}

    @property
    def directory(self) -> Path:
        """The directory in which the launcher and the ranks start."""
        return CODE / self.name if self.name else Path.cwd()

    def unpack(self) -> None:
        """Unpack the code in this pod. Raises ConfigurationError when its archive is broken."""
        if not self.name:
            return
        try:
            self._content = pack(CODE_SOURCE)
            unpack(self._content, self.directory)
        except (OSError, tarfile.TarError, EOFError) as problem:
            raise ConfigurationError(f"cannot unpack code.archive: {problem}") from problem

    def is_on(self, host: Host, address: str) -> bool:
        """Whether the pod at this address has the code, if there is any."""
        return not self.name or self._delivered.get(host) == address

    def deliver(self, addresses: Mapping[Host, str]) -> None:
        """Hand the code to those hosts that do not have it. Raises RunError when one fails."""
        hosts = [host for host, address in addresses.items() if not self.is_on(host, address)]
        if not hosts:
            return
        receive = ["user_code.py", self.name]
        answers = remote.call(hosts, receive, self._content, seconds=DELIVERY_TIMEOUT)
        self._delivered.update({host: addresses[host] for host in hosts if not answers[host][0]})
        reasons = [f"{host.name}: {output}" for host, (code, output) in answers.items() if code]
        if reasons:
            raise RunError("cannot hand the code to the workers: " + "; ".join(reasons))
        log(f"code {self.name} ({len(self._content)} bytes) is on {len(hosts)} hosts")


def pack(source: Path) -> bytes:
    """Return one tar.gz of a mounted ConfigMap: the archive's entries and the files."""
    content = io.BytesIO()
    # mtime 0: the same code is the same bytes.
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as archive:
        if (source / ARCHIVE).is_file():
            with tarfile.open(source / ARCHIVE) as folder:
                for member in folder:
                    archive.addfile(member, folder.extractfile(member) if member.isfile() else None)
        for file in sorted(source.iterdir()):
            # The kubelet's own entries, ..data and the directory that it links to, begin with dots.
            if file.is_file() and file.name != ARCHIVE and not file.name.startswith(".."):
                member = tarfile.TarInfo(file.name)
                member.size = file.stat().st_size
                with file.open("rb") as stream:
                    archive.addfile(member, stream)
    return content.getvalue()


def unpack(content: bytes, directory: Path) -> None:
    """Unpack a tar.gz into a directory, which has all of it from the moment that it exists.

    Raises OSError or tarfile.TarError.
    """
    if directory.exists():
        return
    with tempfile.TemporaryDirectory(dir=directory.parent) as name:
        complete = Path(name) / "complete"
        complete.mkdir()
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                unpack_member(archive, member, complete)
        complete.rename(directory)


def unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    """Write one entry of an archive. Raises TarError for one that would leave the directory.

    tarfile's own filters are missing from older releases of Python 3.8.
    """
    path = directory / member.name
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


def main() -> int:
    """On a worker: unpack the code from standard input, and remove that of earlier runs."""
    directory = CODE / sys.argv[1]
    try:
        unpack(sys.stdin.buffer.read(), directory)
    except (OSError, tarfile.TarError, EOFError) as problem:
        print(f"cannot unpack the code in {directory}: {problem}", file=sys.stderr)
        return 1
    for other in CODE.iterdir():
        if other != directory:
            shutil.rmtree(other, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
