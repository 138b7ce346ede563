"""The user's code: the master sends it to the workers, so that changed code needs no new image.

The chart mounts the code into the master only. A worker gets it before the ranks
start, in a directory that is named after its content, so that workers need not be replaced for it.
"""

from __future__ import annotations

import shutil
import tarfile
from collections import Counter
from pathlib import Path
from typing import Callable, Mapping, Sequence

from hvd_pods.master import remote
from hvd_pods.pod import code_archive, packages
from hvd_pods.pod.reporting import log
from hvd_pods.shared.errors import ConfigurationError, RunError
from hvd_pods.shared.exit_codes import BAD_CONFIGURATION
from hvd_pods.shared.pip_output import REQUIREMENTS
from hvd_pods.shared.run import Code, Pod, Worker
from hvd_pods.shared.untrusted import one_line

# Timeout in seconds for a worker to receive the code, which is at most one MiB.
CODE_DELIVERY_TIMEOUT_SECONDS = 60.0
# Seconds that a worker has to report that its pip was too slow.
PIP_REPORT_TIMEOUT_SECONDS = 5.0
# Limits of a message about failed workers: reasons, and characters of each reason.
MAX_REASONS = 8
MAX_DELIVERY_OUTPUT_CHARACTERS = 2000


class UserCode:
    """The code of a run, if it has a version; pip has `install_timeout_seconds`, 0: no pip.

    The ConfigMap is mounted at `source`. `folder` has a folder for each version.
    """

    def __init__(
        self,
        code: Code,
        source: Path,
        folder: Path,
        install_timeout_seconds: float = 0.0,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._code = code
        self._source = source
        self._folder = folder
        # Also the name of its folder in the workers.
        self.name = code.version
        self._install_timeout_seconds = install_timeout_seconds
        self._is_stopped = is_stopped
        self._content = b""
        self._delivered: dict[Worker, Pod] = {}

    @property
    def directory(self) -> Path:
        """The directory in which the launcher and the ranks start."""
        return self._folder / self.name if self.name else Path.cwd()

    def unpack(self) -> None:
        """Unpack the code in this pod. Raises ConfigurationError if it is broken or another one."""
        if not self.name:
            return
        try:
            # Read once: the kubelet may mount another ConfigMap at any time.
            files = code_archive.read_source(self._source)
            self._require_own(code_archive.digest(files))
            self._content = code_archive.pack(files)
            code_archive.unpack(self._content, self.directory)
        except (OSError, tarfile.TarError, EOFError) as problem:
            raise ConfigurationError(f"cannot unpack `code.archive`: {problem}") from problem

    def _require_own(self, digest: str) -> None:
        if digest != self._code.sha256:
            raise ConfigurationError(
                f"the code in ConfigMap {self._code.config_map} has the SHA256 {digest}, and the "
                f"Job says {self._code.sha256}: somebody has changed it. Delete the ConfigMap, and "
                "run `helm upgrade` with the same values and another `master.generation`"
            )

    @property
    def has_packages(self) -> bool:
        """Whether the unpacked code requires packages, and the chart installs them."""
        requirements = self.directory / REQUIREMENTS
        return bool(self.name and self._install_timeout_seconds) and requirements.is_file()

    def prepare_launcher(self, mode: str, variables: dict[str, str]) -> dict[str, str]:
        """Return the environment of a launcher in this mode. Raises RunError when pip fails.

        The packages may provide the mpirun that the image lacks. Any part of a custom command may
        be a script that needs them here.
        """
        if not self.has_packages:
            return variables
        lacks_mpirun = mode == "mpirun" and shutil.which("mpirun", path=variables["PATH"]) is None
        is_needed = mode == "custom" or lacks_mpirun
        if is_needed:
            installed = packages.install(
                self.directory, self._install_timeout_seconds
            ).splitlines()[0]
            log(f"{REQUIREMENTS}: the master has installed {installed}")
        # Some launchers give the ranks their own PYTHONPATH.
        is_used = is_needed or variables.get("PYTHONPATH")
        return packages.add_to(variables) if is_used else variables

    def is_on(self, worker: Worker, pod: Pod) -> bool:
        return not self.name or self._delivered.get(worker) == pod

    def forget(self) -> None:
        """Send the code to each worker again: training code may have changed it."""
        self._delivered = {}

    def deliver(self, access: remote.AgentAccess, pods: Mapping[Worker, Pod]) -> None:
        """Send the code to the pods that do not have it. Raises RunError when one fails."""
        workers = [worker for worker, pod in pods.items() if not self.is_on(worker, pod)]
        if not workers:
            return
        options = [code_archive.KEEP_PACKAGES] if self.has_packages else []
        receive = ["pod/code_archive.py", self.name, *options]
        answers = remote.call(
            access,
            workers,
            receive,
            self._content,
            seconds=CODE_DELIVERY_TIMEOUT_SECONDS,
            is_stopped=self._is_stopped,
        )
        reached = [worker for worker in workers if not answers[worker][0]]
        if reached:
            log(f"code {self.name} ({len(self._content)} bytes) is on {len(reached)} workers")
        failed = self._install(access, reached) if self.has_packages and reached else {}
        self._delivered.update({worker: pods[worker] for worker in reached if worker not in failed})
        if len(reached) < len(workers):
            unreached = {worker: answer for worker, answer in answers.items() if answer[0]}
            raise _describe("copy the code to the workers: ", unreached)
        if failed:
            raise _describe(f"install {REQUIREMENTS} on ", failed)

    def _install(
        self, access: remote.AgentAccess, workers: Sequence[Worker]
    ) -> dict[Worker, tuple[int, str]]:
        """Install the packages in workers; return exit code and message of each failed worker."""
        limit = self._install_timeout_seconds
        log(f"{REQUIREMENTS}: pip runs on {len(workers)} workers, at most {limit:.0f} s")
        command = ["pod/packages.py", self.name, str(limit)]
        timeout_seconds = limit + PIP_REPORT_TIMEOUT_SECONDS
        answers = remote.call(
            access, workers, command, seconds=timeout_seconds, is_stopped=self._is_stopped
        )
        done = Counter(output for code, output in answers.values() if not code)
        for output, number in done.items():
            first, *warnings = output.splitlines()
            log(f"{REQUIREMENTS}: {number} workers have installed {first}")
            for line in warnings:
                log(f"{REQUIREMENTS}: {line}")
        return {worker: answer for worker, answer in answers.items() if answer[0]}


def _describe(action: str, failed: Mapping[Worker, tuple[int, str]]) -> RunError:
    """Name the first worker for each reason, because all workers usually have the same reason."""
    workers: dict[str, list[str]] = {}
    for worker, (_, output) in failed.items():
        workers.setdefault(output, []).append(worker.name)
    parts = [
        f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: "
        + one_line(output, MAX_DELIVERY_OUTPUT_CHARACTERS)
        for output, names in workers.items()
    ]
    is_sure = all(code == BAD_CONFIGURATION for code, _ in failed.values())
    kind = ConfigurationError if is_sure else RunError
    return kind(f"cannot {action}" + "; ".join(parts[:MAX_REASONS]))
