"""A worker's main program: runs the agent that starts ranks, and watches the ranks.

It is the container's first process. The agent is a separate process: it forks and must respond at
once, whereas this one has threads and waits for other processes. The container ends with the agent.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Iterable, Mapping

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.pod import metrics, packages, processes
from hvd_pods.pod.metrics import Sample, format_page, script_samples
from hvd_pods.pod.private_files import write_private_file
from hvd_pods.pod.reporting import log
from hvd_pods.rank import warm_client
from hvd_pods.shared import contract, notice_kinds, thread_counts
from hvd_pods.shared.paths import CODE, GENERATED, GPUS_PROGRAM, GPUS_SOCKET, PROGRAMS
from hvd_pods.worker import gpus, graceful_termination, kept_states, rank_watch

# Names of ranks' metrics files (those of incomplete files begin with a dot), and the most files to
# serve.
RANK_FILE = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9_.]*")
MAX_RANK_FILES = 256
# Folders of Open MPI in /tmp. Their names, or the names below them, contain a process ID.
DAEMON_FOLDER_PATTERNS = ("ompi.*", "prted.*")


def write_ssh() -> None:
    """Replace the master's command `ssh` with a program that refuses to start anything.

    Open MPI's daemons look for the launcher's agent even when they do not need one.
    """
    program = Path(GENERATED, "bin", "ssh")
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        "#!/bin/sh\necho '[hvd] error: ssh: only the master starts programs in workers' >&2\n"
        "exit 255\n"
    )
    program.chmod(0o755)


def remove_left_folders(temporary: Path) -> None:
    """Remove the folders of daemons that ended with an earlier container of this pod.

    The volume of /tmp outlives a container, and the next container reuses process IDs: a daemon of
    Open MPI 5 ends at once if a folder for its process ID exists.
    """
    for pattern in DAEMON_FOLDER_PATTERNS:
        for folder in temporary.glob(pattern):
            shutil.rmtree(folder, ignore_errors=True)


def start_warm_process(python: str, environment: Mapping[str, str]) -> None:
    """Start a process that imports the modules; ranks connect to its socket."""
    for path in (warm_client.WARM_SOCKET, warm_client.DESCRIPTION):
        Path(path).unlink(missing_ok=True)
    # launch.preload, or the modules that the image names.
    modules = environment.get(contract.PRELOAD, "").replace(",", " ").split()
    if not modules:
        return
    if sys.version_info < (3, 9):
        log("ranks start cold: forks need Python 3.9 or newer (`launch.preload`)")
        return
    # The same variables as in rank/start.py: libraries read them when they are imported.
    cpus = os.sched_getaffinity(0)
    slots = int(environment.get(contract.SLOTS, "1"))
    environment = {**environment, **thread_counts.choose_threads(environment, slots, cpus, cpus)}
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    listener.bind(warm_client.WARM_SOCKET)
    os.umask(before)
    listener.listen(socket.SOMAXCONN)
    number = listener.detach()
    # Not isolated and without options, because a rank's Python starts that way.
    subprocess.Popen(
        [python, f"{PROGRAMS}/warm/server.py", str(number), *modules],
        env=environment,
        stdin=subprocess.DEVNULL,
        pass_fds=[number],
        start_new_session=True,
    )
    os.close(number)
    described = {"python": python, "modules": modules, "environment": environment}
    # The values may be secrets.
    write_private_file(Path(warm_client.DESCRIPTION), json.dumps(described).encode())


def start_gpus(devices: str, path: str = GPUS_SOCKET) -> None:
    """Start the process that reads the GPUs, if there are any; clients connect to its socket.

    `devices` is the folder of the devices' files. If the process cannot start, log the problem.
    """
    if not thread_counts.has_gpus(devices):
        return
    try:
        # A restarted container finds the socket of the previous one.
        Path(path).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            # No client can connect before it listens.
            Path(path).chmod(0o600)
            listener.listen(socket.SOMAXCONN)
            number = listener.fileno()
            subprocess.Popen(
                [sys.executable, "-I", "-S", GPUS_PROGRAM, str(number)],
                stdin=subprocess.DEVNULL,
                pass_fds=[number],
                start_new_session=True,
            )
    except OSError as problem:
        log(f"cannot read the use of GPUs: {problem}")


def start_metrics(environment: Mapping[str, str], gpus_socket: str = GPUS_SOCKET) -> None:
    """Make the directory for the ranks' metrics, and serve them if the chart enables that."""
    folder = Path(environment[contract.METRICS_DIR])
    # A restarted container finds the files of earlier ranks.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    slots = environment.get(contract.SLOTS, "1")
    asker = gpus.GpuClient(gpus_socket)
    metrics.start(lambda: make_page(slots, folder, asker.read()))


def make_page(slots: str, folder: Path, of_gpus: Iterable[Sample] = ()) -> str:
    """Return all metrics of a worker as text; its ranks write theirs to `folder`."""
    samples = [Sample("hvdchart_slots", slots), *of_gpus]
    files = sorted(file for file in folder.iterdir() if RANK_FILE.fullmatch(file.name))
    served = files[:MAX_RANK_FILES]
    for file in served:
        share = metrics.MAX_SERIES // len(served)
        samples += script_samples(file, f'rank="{file.name}"', share)
    return format_page(samples)


class Signals:
    """Signal handlers and a wake-up pipe: for requests to end, and for ended processes."""

    def __init__(self) -> None:
        self.asked_to_end = False
        self._reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer)
        # Without handlers, the kernel delivers no signals to the first process of a container.
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.asked_to_end = True

    def wait(self, seconds: float) -> None:
        """Wait for the next signal, at most this many seconds."""
        if select.select([self._reader], [], [], seconds)[0]:
            os.read(self._reader, 4096)


class SaveProcess:
    """Runs worker/save_states.py: while ranks do not end, and once more when no rank is left."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        # Whether it has run while ranks were left, and after the last one ended.
        self._was_begun: set[bool] = set()

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def begin(self, is_last: bool) -> None:
        """Run the program, unless it is running or has run; `is_last`: no rank is left."""
        if self.is_running or not self._was_begun.isdisjoint({is_last, True}):
            return
        if kept_states.has_states():
            self._was_begun.add(is_last)
            program = f"{PROGRAMS}/worker/save_states.py"
            arguments = [sys.executable, "-I", "-S", program]
            self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL)


def serve(agent: subprocess.Popen[bytes], signals: Signals) -> int:
    """Watch the ranks until this pod is asked to end.

    Return 0 in that case, or the agent's exit code if the agent has ended before. In a queue, 0
    would be an error: Kueue permanently gives back the quota of pods that have succeeded. Kueue
    would then never admit a preempted run again after its workers come back.
    """
    watch = rank_watch.RankWatch(os.environ)
    saver = SaveProcess()

    def wait(seconds: float) -> None:
        signals.wait(seconds)
        # Includes orphans, which become children of the container's first process.
        for pid, status in processes.ended_children():
            for child in (agent, saver.process):
                if child and child.pid == pid:
                    is_exit = os.WIFEXITED(status)
                    child.returncode = (
                        os.WEXITSTATUS(status) if is_exit else 128 + os.WTERMSIG(status)
                    )

    check_delay_seconds = notice_kinds.RANK_WATCH_INTERVAL_SECONDS
    while agent.returncode is None:
        if signals.asked_to_end:
            grace = float(os.environ.get(contract.GRACE_SECONDS, "0"))
            look = partial(wait, graceful_termination.DRAIN_POLL_INTERVAL_SECONDS)
            graceful_termination.drain(agent, grace, look, saver.begin)
            while saver.is_running:
                look()
            saver.begin(True)
            while saver.is_running:
                look()
            return 128 + signal.SIGTERM if os.environ.get(contract.IN_QUEUE) else 0
        wait(check_delay_seconds)
        check_delay_seconds = watch.look()
    log(f"the agent has ended with exit code {agent.returncode}")
    return int(agent.returncode)


def main() -> int:
    """Serve ranks until the end of the pod, or return an exit code when that is not possible."""
    with suppress(ImportError, OSError):
        # Inherit orphans even if this is not the container's first process.
        processes.set_process_option(processes.PR_SET_CHILD_SUBREAPER, 1)
    signals = Signals()
    if Path(CODE).is_dir():
        # The packages are installed later, at this path. Agent connections and forks need the path.
        os.environ.update(packages.add_to(os.environ))
    os.environ.update(rank_watch.choose_period(os.environ))
    write_ssh()
    remove_left_folders(Path(os.environ.get("TMPDIR", "/tmp")))  # noqa: S108 - as Open MPI does
    start_warm_process(sys.executable, os.environ)
    # Start this before the agent: the agent's fence ends processes that are started later, and
    # waits for their end.
    start_gpus(thread_counts.DEVICES)
    agent = subprocess.Popen(
        [sys.executable, "-I", "-S", f"{PROGRAMS}/worker/agent.py"],
        stdin=subprocess.DEVNULL,
    )
    start_metrics(os.environ)
    return serve(agent, signals)


if __name__ == "__main__":
    sys.exit(main())
