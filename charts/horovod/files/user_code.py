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
from collections import Counter
from pathlib import Path
from typing import Callable, Mapping, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent))
import packages
import remote
from settings import (
    BAD_CONFIGURATION,
    CODE,
    CODE_SOURCE,
    ConfigurationError,
    Host,
    Pod,
    RunError,
    log,
)

# The key of the ConfigMap with an archive of a folder. Every other key is a file.
ARCHIVE = "archive.tgz"
# Seconds in which a host has to take the code, which is at most one MiB.
DELIVERY_TIMEOUT = 60.0
# An argument of this program: the packages of an earlier run may be those of this one.
KEEP_PACKAGES = "keep-packages"


class UserCode:
    """The code of a run, which its `name` identifies; without a name the run has no code.

    `install_within` are the seconds that pip has for requirements.txt; with 0, nothing is
    installed.
    """

    def __init__(
        self,
        name: str,
        install_within: float = 0.0,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = name
        self._install_within, self._is_stopped = install_within, is_stopped
        self._content = b""
        self._delivered: dict[Host, Pod] = {}

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

    @property
    def has_packages(self) -> bool:
        """Whether the unpacked code asks for packages, and they are to be installed."""
        requirements = self.directory / packages.REQUIREMENTS
        return bool(self.name and self._install_within) and requirements.is_file()

    def prepare_launcher(self, mode: str, variables: dict[str, str]) -> dict[str, str]:
        """The environment of a launcher in this mode. Raises RunError when pip fails.

        Of a command of the user's own, any part may be a script that needs the packages here.
        """
        if not self.has_packages:
            return variables
        if mode == "custom":
            installed = packages.install(self.directory).splitlines()[0]
            log(f"{packages.REQUIREMENTS}: the master has installed {installed}")
        # Some launchers give the ranks their own PYTHONPATH.
        is_used = mode == "custom" or variables.get("PYTHONPATH")
        return packages.add_to(variables) if is_used else variables

    def is_on(self, host: Host, pod: Pod) -> bool:
        """Whether this pod has the code, if there is any."""
        return not self.name or self._delivered.get(host) == pod

    def forget_addresses(self) -> None:
        """Before another attempt: keep in mind those pods only that are known by their uid.

        A new pod may have an old one's address, on the network of its node even as a rule.
        """
        self._delivered = {host: pod for host, pod in self._delivered.items() if pod.uid}

    def deliver(self, pods: Mapping[Host, Pod]) -> None:
        """Hand the code to those pods that do not have it. Raises RunError when one fails."""
        hosts = [host for host, pod in pods.items() if not self.is_on(host, pod)]
        if not hosts:
            return
        receive = ["user_code.py", self.name, *([KEEP_PACKAGES] if self.has_packages else [])]
        answers = remote.call(hosts, receive, self._content, seconds=DELIVERY_TIMEOUT)
        reached = [host for host in hosts if not answers[host][0]]
        if reached:
            log(f"code {self.name} ({len(self._content)} bytes) is on {len(reached)} hosts")
        failed = self._install(reached) if self.has_packages and reached else {}
        reached = [host for host in reached if host not in failed]
        self._delivered.update({host: pods[host] for host in reached})
        reasons = [f"{host.name}: {output}" for host, (code, output) in answers.items() if code]
        if reasons:
            raise RunError("cannot copy the code to the workers: " + "; ".join(reasons))
        if failed:
            raise _describe(failed)

    def _install(self, hosts: Sequence[Host]) -> dict[Host, tuple[int, str]]:
        """Let hosts install the packages; the exit code and the message of those that cannot."""
        limit = self._install_within
        log(f"{packages.REQUIREMENTS}: pip runs on {len(hosts)} hosts, at most {limit:.0f} s")
        command = ["packages.py", self.name]
        answers = remote.call(hosts, command, seconds=limit, is_stopped=self._is_stopped)
        done = Counter(output for code, output in answers.values() if not code)
        for output, number in done.items():
            first, *warnings = output.splitlines()
            log(f"{packages.REQUIREMENTS}: {number} hosts have installed {first}")
            for line in warnings:
                log(f"{packages.REQUIREMENTS}: {line}")
        return {host: answer for host, answer in answers.items() if answer[0]}


def _describe(failed: Mapping[Host, tuple[int, str]]) -> RunError:
    """Name the first host for each reason: all have the same one, as a rule."""
    hosts: dict[str, list[str]] = {}
    for host, (_, output) in failed.items():
        hosts.setdefault(output, []).append(host.name)
    parts = [
        f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {output}"
        for output, names in hosts.items()
    ]
    is_sure = all(code == BAD_CONFIGURATION for code, _ in failed.values())
    kind = ConfigurationError if is_sure else RunError
    return kind(f"cannot install {packages.REQUIREMENTS} on " + "; ".join(parts))


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
    kept = {directory, *([packages.FOLDER] if KEEP_PACKAGES in sys.argv[2:] else [])}
    for other in CODE.iterdir():
        if other not in kept:
            shutil.rmtree(other, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
